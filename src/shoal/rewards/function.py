"""A Python function as a reward, in TRL's contract: what serves its GRPOTrainer serves here unchanged.

    # rewards.py
    def short(completions, **kwargs):
        return [1.0 if len(c[0]["content"]) < 40 else 0.0 for c in completions]

    with FunctionReward("rewards:short", TasksConfig()) as reward:
        [[value]] = reward.score([(question, ["42"])])

It runs in a process of its own, guarded as the verifier's is. A call of several completions that fails, by an error,
by time, by dying or by returning the wrong number of values, is made again for each of them alone; those for which it
fails again get 0 and are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from shoal.config.tasks import TasksConfig
from shoal.rewards.process import FunctionProcess
from shoal.rewards.reward import Pair, Pointwise, unit
from shoal.rewards.wire import Call, Returned, Start
from shoal.sandbox.verifier import MAX_TEXT

BATCH = 64
"""Completions in one call at most."""
SHARE = 8
"""Completions that share the time of one in a call of several: a single text must not hold up a round for long."""


class FunctionReward(Pointwise):
    """A reward function in a process of its own. Close it, or use it as a context manager."""

    def __init__(
        self,
        function: str,
        tasks: TasksConfig,
        conversational: bool = True,
        columns: Mapping[str, str] | None = None,
        timeout: float = 2.0,
        low: float = 0.0,
        high: float = 1.0,
        guarded: bool = True,
    ) -> None:
        """`function`: `module:attribute`; `timeout`: seconds for a completion alone; `low` and `high`: what it
        returns for the worst and the best, so that rewards are in [0, 1]."""
        super().__init__()
        self.trouble = ""
        """What the last error said, or nothing."""
        start = Start(function, conversational, dict(columns or {}), guarded, tasks.model_dump(mode="json"))
        self._process = FunctionProcess(start)
        self._timeout = timeout
        self._scale = low, high

    def start(self) -> None:
        """Starts the process. Raises `UserError` if there is no such function, or it wants what it cannot have."""
        with self._lock:
            self._process.start()

    def close(self) -> None:
        with self._lock:
            self._process.close()

    def __enter__(self) -> FunctionReward:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _score(self, pairs: list[Pair]) -> list[float | None]:
        values: list[float | None] = [0.0] * len(pairs)
        fit = [i for i, (_, text) in enumerate(pairs) if len(text) <= MAX_TEXT]
        self.failures["too long"] += len(pairs) - len(fit)
        calls = [Call(pairs[i][0].id, pairs[i][0].prompt, pairs[i][1]) for i in fit]
        for i, value in zip(fit, self._values(calls), strict=True):
            values[i] = value
        return values

    def _values(self, calls: list[Call]) -> Iterator[float | None]:
        for batch in (calls[start : start + BATCH] for start in range(0, len(calls), BATCH)):
            whole = self._returned(batch)
            alone = len(batch) > 1 and whole.failure
            for result in [self._returned([call]) for call in batch] if alone else [whole]:
                if result.failure:
                    self.failures[result.failure] += 1
                    self.trouble = result.detail or result.failure
                yield from (self._value(value) for value in (result.values if not result.failure else [0.0]))

    def _returned(self, calls: list[Call]) -> Returned:
        try:
            result = self._process.call(calls, self._timeout * (1 if len(calls) == 1 else 1 + len(calls) / SHARE))
        except (TimeoutError, EOFError) as error:
            return Returned(failure="timeout" if isinstance(error, TimeoutError) else "crash")
        except BaseException:
            self._process.renew()
            raise
        if not result.failure and len(result.values) != len(calls):
            detail = f"{len(result.values)} values for {len(calls)} completions"
            return Returned(failure="wrong length", detail=detail)
        return result

    def _value(self, value: float | None) -> float | None:
        """In [0, 1]; None, as in TRL, where the function does not apply. What is no number is no excuse."""
        if value is None:
            return None
        if math.isnan(value):
            self.failures["nan"] += 1
            return 0.0
        return unit(value, *self._scale)
