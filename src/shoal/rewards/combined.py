"""Several rewards as one weighted sum, which scores a node's rollouts in place of its verifier.

    rewards = Combined([Entry("right", Verified(verifier), 1.0), Entry("style", style, 0.25)])
    rewards.score([(question, ["4", "5"])])             # [[0.9, 0.1]]

The sum is a weighted mean, so it stays in [0, 1]. Gates multiply it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from shoal.protocols import Grader, TaskSource
from shoal.rewards.reward import Items, Reward, Verified
from shoal.rollout import Answer, QuestionId
from shoal.sandbox.pipes import Candidate, Verdict

Column = Sequence[float | None]
"""Values of one reward for the answers of a group."""


@dataclass(frozen=True)
class Entry:
    """One of several rewards."""

    name: str
    reward: Reward
    weight: float = 1.0
    gate: bool = False
    """Multiply the sum of the others by it instead of adding it. With the verifier as a gate no wrong answer has a
    reward, whatever other rewards say."""


class Combined:
    """Several rewards with weights. `close` closes all of them."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        if not entries:
            raise ValueError("at least one reward is needed")
        if len({entry.name for entry in entries}) < len(entries):
            raise ValueError("two rewards have the same name")
        self.entries = list(entries)

    def score(self, items: Items) -> list[list[float]]:
        """One reward in [0, 1] for each answer. Where a reward does not apply to an answer, the others count. An answer
        to which none applies gets the mean of its group, so that nothing is learned from it; if none applies to the
        whole group, all get 0."""
        parts = self.parts(items)
        return [self._group([values[i] for values in parts.values()], len(texts)) for i, (_, texts) in enumerate(items)]

    def parts(self, items: Items) -> dict[str, list[list[float | None]]]:
        """What each reward gives, by name. Cheap after `score`, since values are remembered."""
        return {entry.name: entry.reward.score(items) for entry in self.entries}

    def means(self, items: Items) -> dict[str, float | None]:
        """The mean of each reward by name, over the answers to which it applies; None if there are none."""
        values = {
            name: [v for group in groups for v in group if v is not None] for name, groups in self.parts(items).items()
        }
        return {name: fmean(there) if there else None for name, there in values.items()}

    def by(self, verifier: Grader) -> Combined:
        """The same rewards with another verifier: for strangers' answers, which may hold a verifier up."""
        entries = [
            replace(entry, reward=Verified(verifier)) if isinstance(entry.reward, Verified) else entry
            for entry in self.entries
        ]
        return Combined(entries)

    @property
    def trouble(self) -> str:
        """The first failure of each reward, in one line; empty if there was none."""
        troubles = [(entry.name, entry.reward.trouble) for entry in self.entries]
        return "; ".join(f"reward '{name}': {trouble}" for name, trouble in troubles if trouble)

    def close(self) -> None:
        for entry in self.entries:
            entry.reward.close()

    def __enter__(self) -> Combined:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _group(self, columns: Sequence[Column], size: int) -> list[float]:
        """Rewards of one group of `size` answers, given the values of each entry."""
        pairs = list(zip(self.entries, columns, strict=True))
        summed = [values for entry, values in pairs if not entry.gate]
        weights = [entry.weight for entry in self.entries if not entry.gate]
        raw = _means(summed, weights, size)
        for values in (values for entry, values in pairs if entry.gate):
            raw = [_gated(value, gate, alone=not summed) for value, gate in zip(raw, values, strict=True)]
        known = _known(raw)
        mean = fmean(known) if known else 0.0
        return [mean if value is None else value for value in raw]


class RewardVerifier:
    """Rewards in place of a verifier, for callers that know questions by their ids.

    Not for evaluation: only the tasks' own verifier decides pass@1, whatever a policy is trained on."""

    def __init__(self, tasks: TaskSource, rewards: Combined) -> None:
        self.tasks = tasks
        self.rewards = rewards

    @property
    def trouble(self) -> str:
        return self.rewards.trouble

    def score(self, items: Sequence[tuple[QuestionId, Sequence[Answer]]]) -> list[list[float]]:
        """Rewards in [0, 1]. Raises `ValueError` for an id that is none of the tasks'."""
        return self.rewards.score([(self.tasks.question(id), texts) for id, texts in items])


class ExaminedRewards:
    """Rewards of strangers' answers, which an examiner has already scored by the tasks' verifier."""

    def __init__(self, rewards: Combined) -> None:
        self.rewards = rewards

    def reward(self, candidate: Candidate, verdict: Verdict) -> list[float]:
        """One reward in [0, 1] for each of the candidate's texts."""
        assert verdict.question is not None
        [values] = self.rewards.by(_KnownScores(verdict.rewards)).score([(verdict.question, candidate.texts)])
        return values


class _KnownScores:
    """A verifier that has already scored the one group it is asked about."""

    trouble = ""

    def __init__(self, rewards: Sequence[float]) -> None:
        self.rewards = list(rewards)

    def score(self, items: Sequence[tuple[QuestionId, Sequence[Answer]]]) -> list[list[float]]:
        return [self.rewards for _ in items]


def _known(values: Column) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Column, weights: Sequence[float]) -> float | None:
    """The weighted mean of the values that are known."""
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    if len(pairs) < 2:  # a single value is returned exactly
        return pairs[0][0] if pairs else None
    return math.fsum(v * w for v, w in pairs) / math.fsum(w for _, w in pairs)


def _means(columns: Sequence[Column], weights: Sequence[float], size: int) -> list[float | None]:
    """The weighted mean for each of `size` answers."""
    return [_mean([values[i] for values in columns], weights) for i in range(size)]


def _gated(value: float | None, gate: float | None, alone: bool) -> float | None:
    """`value` times `gate`, if that applies; gates alone multiply each other."""
    if gate is None:
        return value
    if value is None:
        return gate if alone or not gate else None
    return value * gate
