"""Settings of `[[rewards]]` of the kinds model and generative.

[[rewards]]
kind = "model"
model = "Skywork/Skywork-Reward-V2-Qwen3-0.6B"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from shoal.config.rewards import ModelSection

if TYPE_CHECKING:
    from shoal.config.settings import Config
    from shoal.policy.device import Placement
    from shoal.rewards import Reward


class ModelRewardSection(ModelSection):
    """A reward model: a transformer for sequence classification."""

    label: int = Field(0, ge=0)
    """Which of the model's outputs is the reward, if there are several."""
    scale: Literal["sigmoid", "linear"] = "sigmoid"
    """How an output becomes a reward. sigmoid: as a probability (softmax if there are several outputs). linear: as it
    is."""
    max_characters: int = Field(4000, ge=1)
    """Characters of a question, and of an answer, that the model reads; at most one token for each."""

    def make(self, config: Config, placement: Placement, key: bytes) -> Reward:
        from shoal_extras.rewards.model import ModelReward

        return ModelReward(self.model, placement, self.label, self.scale, self.max_characters)


class GenerativeRewardSection(ModelSection):
    """A language model that is asked whether an answer is right."""

    votes: int = Field(4, ge=1, le=64)
    """Prompts for each answer, with different wording and order. The reward is the mean of their votes, or the lowest
    one if calibrated."""
    calibrated: bool = True
    """Count only how much more an answer gets, in every vote, than an empty answer and than the same text as the answer
    to another question. A model that says Yes to everything, or to anything that asks for it, then rewards nothing."""
    max_characters: int = Field(4000, ge=1)
    """Characters of a question, and of an answer, that the model reads; at most one token for each."""

    def make(self, config: Config, placement: Placement, key: bytes) -> Reward:
        from shoal_extras.rewards.generative import GenerativeReward

        return GenerativeReward(
            self.model, placement, self.votes, self.max_characters, self.calibrated, config.seed, key
        )
