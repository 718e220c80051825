"""Rewards from their settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.config.rewards import RewardSpec
from shoal.config.settings import Config
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.protocols import Verifier
from shoal.rewards.combined import Aggregation, Combined, Entry
from shoal.rewards.function import FunctionReward
from shoal.rewards.rankings import Rankings
from shoal.rewards.reward import Reward, Verified

if TYPE_CHECKING:
    from shoal.policy.device import Placement


def make_rewards(
    specs: Sequence[RewardSpec],
    aggregation: Aggregation,
    tasks: TasksConfig,
    verifier: Verifier,
    placement: Callable[[], Placement],
    seed: int,
    key: bytes = b"",
) -> Combined | None:
    """The rewards that `specs` name; None where that is the verifier alone, which then scores as it always did.

    `verifier`: for the entries of its kind; it stays the caller's to close. `placement`: where models compute, asked
    only if there are any. `key`: of a generative verifier's markers. Raises `UserError` for what cannot be had.
    """
    if all(spec.kind == "verifier" for spec in specs):
        return None
    counts = Counter(spec.label_name for spec in specs)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise UserError(f"two rewards are called '{twice[0]}': give them a `name` each")
    entries: list[Entry] = []
    try:
        for spec in specs:
            reward = _reward(spec, tasks, verifier, placement, seed, key)
            entries.append(Entry(spec.label_name, reward, spec.weight, spec.gate))
    except BaseException:
        for entry in entries:
            entry.reward.close()
        raise
    return Combined(entries, aggregation)


def rewards_of(config: Config, verifier: Verifier, placement: Placement, key: bytes = b"") -> Combined | None:
    """The rewards of a run's settings, as `make_rewards` has them."""
    aggregation = config.learner.multi_objective_aggregation
    return make_rewards(config.rewards, aggregation, config.tasks, verifier, lambda: placement, config.seed, key)


def _reward(
    spec: RewardSpec,
    tasks: TasksConfig,
    verifier: Verifier,
    placement: Callable[[], Placement],
    seed: int,
    key: bytes,
) -> Reward:
    if spec.kind == "verifier":
        return Verified(verifier)
    if spec.kind == "rankings":
        return Rankings(Path(spec.file).expanduser(), spec.method)
    if spec.kind == "function":
        function = FunctionReward(
            spec.function, tasks, spec.conversational, spec.columns, spec.timeout, spec.low, spec.high, spec.guarded
        )
        try:
            function.start()  # what is wrong with it is to be told now
        except BaseException:
            function.close()
            raise
        return function
    if spec.kind == "generative":
        from shoal.rewards.generative import GenerativeReward  # with torch, as the next

        return GenerativeReward(spec.model, placement(), spec.votes, spec.max_characters, spec.calibrated, seed, key)
    from shoal.rewards.model import ModelReward

    return ModelReward(spec.model, placement(), spec.label, spec.scale, spec.low, spec.high, spec.max_characters)
