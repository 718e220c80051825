"""Rewards of answers besides the tasks' own verifier: functions, what packages add, and weighted sums of them.

    rewards = rewards_of(config, verifier, placement)
    rewards.score([(question, ["42", "43"])])       # [[0.9, 0.1]]

See docs/guides/rewards.md.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from shoal.config.rewards import FunctionSection, RewardSection, VerifierSection
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.protocols import Grader
from shoal.rewards.combined import Combined, Entry, Filled, RewardVerifier
from shoal.rewards.function import FunctionReward
from shoal.rewards.reward import Pointwise, Reward, Verified

if TYPE_CHECKING:
    from shoal.policy.device import Placement

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


def rewards_of(config: Config, verifier: Grader, placement: Placement) -> Combined | None:
    """The rewards of a run's settings; None if that is only the verifier, which then scores alone.

    `verifier`: for the entries of its kind; the caller closes it. `placement`: where models compute. Raises
    `UserError` for a reward that cannot be made.
    """
    if all(spec.kind == "verifier" for spec in config.rewards):
        return None
    counts = Counter(spec.display_name for spec in config.rewards)
    for name, count in counts.items():
        if count > 1:
            raise UserError(f"two rewards are called '{name}': give them a `name` each")
    entries: list[Entry] = []
    with ExitStack() as made:
        for spec in config.rewards:
            reward = _reward(spec, config, verifier, placement)
            made.callback(reward.close)
            entries.append(Entry(spec.display_name, reward, spec.weight, spec.gate))
        made.pop_all()
    return Combined(entries)


def _reward(spec: RewardSection, config: Config, verifier: Grader, placement: Placement) -> Reward:
    if isinstance(spec, VerifierSection):
        return Verified(verifier)
    if isinstance(spec, FunctionSection):
        return FunctionReward(spec, config.tasks)
    reward: Reward = spec.make(config, placement)
    return reward
