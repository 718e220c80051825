"""Stops a run in which nothing can be scored: a scorer that raises for every answer teaches nothing, ever.

failing = FailedScoring(verifier, rewards)
...                             # answers are scored
failing.all_failed()            # whether each of them failed since the last call
"""

from __future__ import annotations

from shoal.rewards.combined import Combined
from shoal.rewards.function import FunctionReward
from shoal.rewards.reward import Verified
from shoal.sandbox.verifier import Verifier


class FailedScoring:
    """Counts the failures of a verifier and of reward functions."""

    def __init__(self, verifier: Verifier, rewards: Combined | None) -> None:
        others = [entry.reward for entry in rewards.entries] if rewards else []
        self._functions = [reward for reward in others if isinstance(reward, FunctionReward)]
        self._verifier = verifier
        self._known = all(isinstance(reward, FunctionReward | Verified) for reward in others)
        self._before = 0, 0
        self.all_failed()  # the verifier may have been used before

    def all_failed(self) -> bool:
        """Whether there were answers since the last call, and each failed. False where a model or a person rewards."""
        counts = [self._verifier.counts, *(function.counts for function in self._functions)]
        failed, scored = map(sum, zip(*counts, strict=True))
        before, self._before = self._before, (failed, scored)
        return self._known and 0 < scored - before[1] == failed - before[0]
