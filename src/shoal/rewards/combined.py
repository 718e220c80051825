"""Several rewards as one, with weights: what a node's rollouts are scored by in place of its verifier alone.

    rewards = Combined([Entry("right", Verified(verifier), 1.0), Entry("style", judge, 0.25)])
    rewards.score([(question, ["4", "5"])])             # [[0.9, 0.1]]

Both ways of adding them up keep rewards in [0, 1] and the mean of a group where the weighted mean of its rewards is, so
that whatever goes by `Scored.mean_reward` keeps its meaning. Gates multiply what the sum gives.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Literal

from shoal.protocols import Tasks, Verifier
from shoal.rewards.reward import Items, Reward, Verified
from shoal.rollout import QuestionId
from shoal.sandbox.examiner import Candidate, Verdict

Aggregation = Literal["sum_then_normalize", "normalize_then_sum"]
"""In TRL's words, where it is the learner that normalises a sum. normalize_then_sum: each reward is normalised in its
group first, so that none counts more by its wider scale (GDPO, arXiv 2601.05242)."""
EPSILON = 1e-4
"""Added to standard deviations, as in GDPO's and TRL's code: what hardly differs is not blown up."""
SPREAD = 0.5
"""Standard deviation that normalised rewards get, where [0, 1] has room for it: that of right and wrong in halves."""


@dataclass(frozen=True)
class Entry:
    """One of several rewards."""

    name: str
    reward: Reward
    weight: float = 1.0
    gate: bool = False
    """Whether it multiplies the sum of the others instead of being in it: with the verifier as a gate no wrong answer
    has a reward, whatever it talked a judge into."""


class Combined:
    """Several rewards with weights. Owns them: `close` ends what they run."""

    def __init__(self, entries: Sequence[Entry], aggregation: Aggregation = "sum_then_normalize") -> None:
        if not entries:
            raise ValueError("at least one reward is needed")
        if len({entry.name for entry in entries}) < len(entries):
            raise ValueError("two rewards have the same name")
        self.entries = list(entries)
        self.aggregation = aggregation
        self.unrewarded = 0
        """Answers that no reward applied to."""

    def score(self, items: Items) -> list[list[float]]:
        """One reward in [0, 1] for each answer. Where one of several does not apply to an answer, the others count in
        its place. An answer to which none applies gets the mean of its group, from which nothing is learned; a group
        without any gets 0 throughout."""
        parts = self.parts(items)
        return [self._group([values[i] for values in parts.values()], len(texts)) for i, (_, texts) in enumerate(items)]

    def parts(self, items: Items) -> dict[str, list[list[float | None]]]:
        """What each of the rewards gives, by name. Costs little after `score`: values are remembered."""
        return {entry.name: entry.reward.score(items) for entry in self.entries}

    def means(self, items: Items) -> dict[str, float | None]:
        """The mean of each of the rewards by name, over the answers to which it applies; None if there is none."""
        values = {
            name: [v for group in groups for v in group if v is not None] for name, groups in self.parts(items).items()
        }
        return {name: fmean(there) if there else None for name, there in values.items()}

    def by(self, verifier: Verifier) -> Combined:
        """The same rewards, models and processes with another verifier: for strangers' answers, which may hold one
        up."""
        entries = [
            replace(entry, reward=Verified(verifier)) if isinstance(entry.reward, Verified) else entry
            for entry in self.entries
        ]
        return Combined(entries, self.aggregation)

    @property
    def failures(self) -> Counter[str]:
        """Failures of all, by name and reason: "style/unclear"."""
        counts: Counter[str] = Counter()
        for entry in self.entries:
            counts.update({f"{entry.name}/{reason}": n for reason, n in entry.reward.failures.items() if n})
        return counts

    def close(self) -> None:
        for entry in self.entries:
            entry.reward.close()

    def __enter__(self) -> Combined:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _group(self, by_name: Sequence[Sequence[float | None]], size: int) -> list[float]:
        """Rewards of one group of `size` answers, of which `by_name` has those by each entry."""
        pairs = list(zip(self.entries, by_name, strict=True))
        summed = [values for entry, values in pairs if not entry.gate]
        weights = [entry.weight for entry in self.entries if not entry.gate]
        raw = _means(summed, weights, size)
        if self.aggregation == "normalize_then_sum" and (known := [v for v in raw if v is not None]):
            raw = _stretched(_means([_normalised(values) for values in summed], weights, size), fmean(known))
        for values in (values for entry, values in pairs if entry.gate):
            raw = [_gated(value, gate, alone=not summed) for value, gate in zip(raw, values, strict=True)]
        known = [value for value in raw if value is not None]
        self.unrewarded += size - len(known)
        mean = fmean(known) if known else 0.0
        return [mean if value is None else value for value in raw]


class RewardVerifier:
    """Rewards in a verifier's place, for whoever knows questions by their ids: a `Scorer`, or several ranks.

    Not for evaluation: pass@1 is the tasks' own verifier's alone, whatever a policy is trained by."""

    def __init__(self, tasks: Tasks, rewards: Combined) -> None:
        self.tasks = tasks
        self.rewards = rewards

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        """Rewards in [0, 1]. Raises `ValueError` for an id that is none of the tasks'."""
        return self.rewards.score([(self.tasks.question(id), texts) for id, texts in items])


class ExaminedRewards:
    """Rewards of strangers' answers, which an examiner has scored by the tasks' verifier before."""

    def __init__(self, rewards: Combined) -> None:
        self.rewards = rewards

    def reward(self, candidate: Candidate, verdict: Verdict) -> list[float]:
        """One reward in [0, 1] for each of the candidate's texts."""
        assert verdict.question is not None
        [values] = self.rewards.by(_Scored(verdict.rewards)).score([(verdict.question, candidate.texts)])
        return values


class _Scored:
    """A verifier that has scored one group already."""

    def __init__(self, rewards: Sequence[float]) -> None:
        self.rewards = list(rewards)

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        return [self.rewards for _ in items]


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """The weighted mean of those that are there."""
    there = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    if not there:
        return None
    # exactly the value itself where it is the only one
    return there[0][0] if len(there) == 1 else sum(v * w for v, w in there) / math.fsum(w for _, w in there)


def _means(columns: Sequence[Sequence[float | None]], weights: Sequence[float], size: int) -> list[float | None]:
    """The weighted mean for each of `size` answers."""
    return [_mean([values[i] for values in columns], weights) for i in range(size)]


def _gated(value: float | None, gate: float | None, alone: bool) -> float | None:
    """`value` times `gate`, which is left out where it does not apply; gates alone are a product of their own."""
    if gate is None:
        return value
    if value is None:
        return gate if alone or not gate else None
    return value * gate


def _normalised(values: Sequence[float | None]) -> list[float | None]:
    """One reward's values in a group, less their mean, over their standard deviation."""
    there = [value for value in values if value is not None]
    if not there:
        return list(values)
    mean, deviation = fmean(there), pstdev(there)
    return [None if value is None else (value - mean) / (deviation + EPSILON) for value in values]


def _stretched(sums: Sequence[float | None], mean: float) -> list[float | None]:
    """`mean` plus what `sums` are from theirs, by one factor for the group: SPREAD, or what [0, 1] has room for."""
    there = [value for value in sums if value is not None]
    if not there:
        return list(sums)
    middle = fmean(there)
    room = [(1 - mean) / (v - middle) if v > middle else mean / (middle - v) for v in there if abs(v - middle) > 1e-9]
    factor = min([SPREAD, *room])
    return [None if v is None else min(1.0, max(0.0, mean + factor * (v - middle))) for v in sums]
