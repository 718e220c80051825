"""Makes rewards from their settings."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.config.rewards import (
    FunctionRewardSpec,
    GenerativeRewardSpec,
    RankingsRewardSpec,
    RewardSpec,
    VerifierRewardSpec,
)
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.protocols import Grader
from shoal.rewards.combined import Combined, Entry
from shoal.rewards.function import FunctionReward
from shoal.rewards.rankings import Rankings
from shoal.rewards.reward import Reward, Verified

if TYPE_CHECKING:
    from shoal.policy.device import Placement


def rewards_of(config: Config, verifier: Grader, placement: Placement, key: bytes = b"") -> Combined | None:
    """The rewards of a run's settings; None if that is only the verifier, which then scores alone.

    `verifier`: for the entries of its kind; the caller closes it. `placement`: where models compute. `key`: of a
    generative verifier's markers. Raises `UserError` for a reward that cannot be made.
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
            reward = _reward(spec, config, verifier, placement, key)
            made.callback(reward.close)
            entries.append(Entry(spec.display_name, reward, spec.weight, spec.gate))
        made.pop_all()
    return Combined(entries)


def _reward(spec: RewardSpec, config: Config, verifier: Grader, placement: Placement, key: bytes) -> Reward:
    if isinstance(spec, VerifierRewardSpec):
        return Verified(verifier)
    if isinstance(spec, RankingsRewardSpec):
        return Rankings(Path(spec.file).expanduser(), read_only=True)
    if isinstance(spec, FunctionRewardSpec):
        return FunctionReward(spec, config.tasks)
    if isinstance(spec, GenerativeRewardSpec):
        from shoal.rewards.generative import GenerativeReward  # it imports torch, as the next does

        return GenerativeReward(
            spec.model, placement, spec.votes, spec.max_characters, spec.calibrated, config.seed, key
        )
    from shoal.rewards.model import ModelReward

    return ModelReward(spec.model, placement, spec.label, spec.scale, spec.low, spec.high, spec.max_characters)
