"""Rewards of answers besides the tasks' own verifier: functions, what packages add, and weighted sums of them.

    rewards = rewards_of(config, verifier, placement)
    rewards.score([(question, ["42", "43"])])       # [[0.9, 0.1]]

See docs/guides/rewards.md.
"""

from shoal.rewards.combined import Combined, Entry, Filled, RewardVerifier
from shoal.rewards.function import FunctionReward
from shoal.rewards.make import rewards_of
from shoal.rewards.reward import Pointwise, Reward, Verified

__all__ = [
    "Combined",
    "Entry",
    "Filled",
    "FunctionReward",
    "Pointwise",
    "Reward",
    "RewardVerifier",
    "Verified",
    "rewards_of",
]
