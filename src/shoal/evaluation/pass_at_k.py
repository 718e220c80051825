"""Evaluation on held-out questions: pass@1 and pass@k with intervals, over all and for each task."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean

from shoal.protocols import Grader, OnProgress, Policy, progress_to
from shoal.rollout import Completion, Question
from shoal.sandbox.replay import attach_environments


@dataclass(frozen=True)
class Estimate:
    """A proportion with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Asked:
    """A held-out question, the answers to it, and their rewards by the verifier."""

    question: Question
    answers: tuple[Completion, ...]
    rewards: tuple[float, ...]


@dataclass(frozen=True)
class Evaluation:
    """How many of `samples` answers to each held-out question were right, by task."""

    samples: int
    correct: dict[str, list[int]]
    unanswered: int = 0
    """Questions left out because fewer than `samples` answers came: an endpoint failed, or they are too long."""
    asked: dict[str, list[Asked]] = field(default_factory=dict, compare=False)
    """All questions with their answers, by task."""

    def pass_at(self, k: int, task: str | None = None) -> Estimate:
        """The chance that at least one of `k` answers is right, for one task or over the questions of all.

        The unbiased estimator of Chen et al. (arXiv 2107.03374, eq. 1), averaged over questions; Wilson's interval with
        the number of *questions* as its size, since answers to one question are not independent. Raises `ValueError`
        for a `k` outside 1..samples.
        """
        if not 1 <= k <= self.samples:
            raise ValueError(f"pass@{k} needs at least {k} samples, and there are {self.samples}")
        counts = self.correct[task] if task is not None else [c for counts in self.correct.values() for c in counts]
        if not counts:
            return Estimate(math.nan, 0.0, 1.0)
        value = fmean(1 - math.comb(self.samples - c, k) / math.comb(self.samples, k) for c in counts)
        return Estimate(value, *wilson(value, len(counts)))


def wilson(proportion: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % score interval for `proportion` observed in `n` trials (JASA 22, 1927)."""
    z = NormalDist().inv_cdf(0.975)
    centre = (proportion + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(proportion * (1 - proportion) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def evaluate(
    policy: Policy,
    verifier: Grader,
    questions: Mapping[str, Sequence[Question]],
    samples: int,
    seed: int,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Asks `policy` each question `samples` times and counts right answers: those with a full reward.
    `on_progress` gets the number of questions answered so far; what it raises ends the evaluation."""
    asked = [question for group in questions.values() for question in group]
    attach_environments(policy, verifier)
    with progress_to(policy, on_progress):
        answers = policy.generate(asked, samples, seed)
    rewards = verifier.score([(q.id, [c.answer for c in group]) for q, group in zip(asked, answers, strict=True)])
    each = (Asked(q, group, tuple(given)) for q, group, given in zip(asked, answers, rewards, strict=True))
    by_task = {task: [next(each) for _ in group] for task, group in questions.items()}
    right = {
        task: [sum(reward >= 1 for reward in one.rewards) for one in found if len(one.rewards) == samples]
        for task, found in by_task.items()
    }
    return Evaluation(samples, right, len(asked) - sum(map(len, right.values())), by_task)
