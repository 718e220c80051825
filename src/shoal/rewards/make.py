"""Makes rewards from their settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
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
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.protocols import Grader
from shoal.rewards.combined import Combined, Entry
from shoal.rewards.function import FunctionReward
from shoal.rewards.rankings import Rankings
from shoal.rewards.reward import Reward, Verified

if TYPE_CHECKING:
    from shoal.policy.device import Placement


def make_rewards(
    specs: Sequence[RewardSpec],
    tasks: TasksConfig,
    verifier: Grader,
    placement: Callable[[], Placement],
    seed: int,
    key: bytes = b"",
) -> Combined | None:
    """The rewards that `specs` name; None if that is only the verifier, which then scores alone.

    `verifier`: for the entries of its kind; the caller closes it. `placement`: where models compute, called only if
    there are any. `key`: of a generative verifier's markers. Raises `UserError` for a reward that cannot be made.
    """
    if all(spec.kind == "verifier" for spec in specs):
        return None
    counts = Counter(spec.display_name for spec in specs)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise UserError(f"two rewards are called '{twice[0]}': give them a `name` each")
    entries: list[Entry] = []
    try:
        for spec in specs:
            reward = _reward(spec, tasks, verifier, placement, seed, key)
            entries.append(Entry(spec.display_name, reward, spec.weight, spec.gate))
    except BaseException:
        for entry in entries:
            entry.reward.close()
        raise
    return Combined(entries)


def rewards_of(config: Config, verifier: Grader, placement: Placement, key: bytes = b"") -> Combined | None:
    """The rewards of a run's settings, as `make_rewards` has them."""
    return make_rewards(config.rewards, config.tasks, verifier, lambda: placement, config.seed, key)


def _reward(
    spec: RewardSpec,
    tasks: TasksConfig,
    verifier: Grader,
    placement: Callable[[], Placement],
    seed: int,
    key: bytes,
) -> Reward:
    if isinstance(spec, VerifierRewardSpec):
        return Verified(verifier)
    if isinstance(spec, RankingsRewardSpec):
        return Rankings(Path(spec.file).expanduser(), read_only=True)
    if isinstance(spec, FunctionRewardSpec):
        function = FunctionReward(
            spec.function, tasks, spec.conversational, spec.columns, spec.timeout, spec.low, spec.high, spec.guarded
        )
        try:
            function.start()  # its mistakes are reported now
        except BaseException:
            function.close()
            raise
        return function
    if isinstance(spec, GenerativeRewardSpec):
        from shoal.rewards.generative import GenerativeReward  # it imports torch, as the next does

        return GenerativeReward(spec.model, placement(), spec.votes, spec.max_characters, spec.calibrated, seed, key)
    from shoal.rewards.model import ModelReward

    return ModelReward(spec.model, placement(), spec.label, spec.scale, spec.low, spec.high, spec.max_characters)
