"""Several rewards as one weighted sum, which scores a node's rollouts in place of its verifier.

    rewards = Combined([Entry("right", Verified(verifier), 1.0), Entry("style", style, 0.25)])
    rewards.score([(question, ["4", "5"])])             # [[1.1, 0.1]]

The sum is that of TRL: each reward times its weight, without those that are None. Gates multiply it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from shoal.protocols import TaskSource
from shoal.rewards.reward import FAILED, Items, Reward, Values, Verified
from shoal.rollout import Answer, QuestionId


class Filled(float):
    """The mean of a group, which an answer gets to which no reward applies, but one to others of its group."""


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
        self._silent = 0

    def score(self, items: Items, verified: Sequence[Sequence[float]] | None = None) -> list[list[float]]:
        """One reward for each answer. Where a reward does not apply to an answer, the others count. An answer to which
        none applies gets the mean of its group, so that nothing is learned from it; if none applies to the whole group,
        all get 0. An answer on which a reward failed gets the least of its group, and 0 at most. `verified`: what the
        tasks' verifier gave, if it was asked before."""
        columns = [
            verified
            if verified is not None and isinstance(entry.reward, Verified)
            else known(entry.reward.score(items))
            for entry in self.entries
        ]
        return [self._group([values[i] for values in columns], len(texts)) for i, (_, texts) in enumerate(items)]

    def means(self, items: Items) -> dict[str, float | None]:
        """The mean of each reward by name, over the answers to which it applies; None if there are none. Cheap after
        `score`, since values are remembered."""
        found: dict[str, float | None] = {}
        for entry in self.entries:
            values = [
                value
                for group in known(entry.reward.score(items))
                for value in group
                if value is not None and value != FAILED
            ]
            found[entry.name] = fmean(values) if values else None
        return found

    @property
    def trouble(self) -> str:
        """The first failure of each reward, in one line; empty if there was none."""
        troubles = [(entry.name, entry.reward.trouble) for entry in self.entries]
        said = [f"reward '{name}': {trouble}" for name, trouble in troubles if trouble]
        said += [f"all rewards are None for the answers to {self._silent} questions"] if self._silent else []
        return "; ".join(said)

    def close(self) -> None:
        for entry in self.entries:
            entry.reward.close()

    def _group(self, columns: Sequence[Sequence[float | None]], size: int) -> list[float]:
        """Rewards of one group of `size` answers, given the values of each entry."""
        raw = [self._sum([values[i] for values in columns]) for i in range(size)]
        whole = [value for value in raw if value is not None and value != FAILED]
        self._silent += all(value is None for value in raw)
        mean, least = fmean(whole) if whole else 0.0, min([0.0, *whole])
        nothing = Filled(mean) if whole else mean
        return [nothing if value is None else least if value == FAILED else value for value in raw]

    def _sum(self, values: Sequence[float | None]) -> float | None:
        """The reward of one answer: the weighted sum of the values that are known, times the gates that are. Gates
        alone multiply each other."""
        if FAILED in values:
            return FAILED
        pairs = [(entry, value) for entry, value in zip(self.entries, values, strict=True) if value is not None]
        summed = [value * entry.weight for entry, value in pairs if not entry.gate]
        alone = all(entry.gate for entry in self.entries)
        found = math.fsum(summed) if summed else None
        for gate in (value for entry, value in pairs if entry.gate):
            if found is not None:
                found *= gate
            elif alone or not gate:
                found = gate
        return found


def known(values: Values) -> Values:
    """`values` with None for NaN."""
    return [[None if value is None or math.isnan(value) else value for value in group] for group in values]


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
        """Rewards of any size. Raises `ValueError` for an id that is none of the tasks'."""
        return self.rewards.score([(self.tasks.question(id), texts) for id, texts in items])
