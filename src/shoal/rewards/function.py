"""A Python function as a reward, in TRL's contract: a function for its GRPOTrainer works here unchanged.

    # rewards.py
    def short(completions, **kwargs):
        return [1.0 if len(c[0]["content"]) < 40 else 0.0 for c in completions]

    with FunctionReward(FunctionSection(function="rewards:short"), TasksConfig()) as reward:
        [[value]] = reward.score([(question, ["42"])])

It runs in its own process, guarded like the verifier's. If a call with several completions fails (by an error, a
timeout or a crash), each completion is tried alone. Those that fail again get `FAILED`, the worst, and are
counted. A wrong number of values is an error at once, as in TRL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import msgspec

from shoal.child import command
from shoal.config.rewards import FunctionSection
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.rewards.function_worker import Call, Returned, Start
from shoal.rewards.reward import FAILED, Pair, Pointwise
from shoal.sandbox.process import GuardedProcess
from shoal.sandbox.verifier import MAX_TEXT
from shoal.tasks.task import Trouble

COMMAND = command("shoal.rewards.function_worker")
LARGEST = 3.4e38
"""Of a reward, as a number of 32 bits holds it: TRL computes with these."""
BATCH = 64
"""Completions in one call at most."""
SHARE = 8
"""Completions that share the time of one in a call of several: a single text must not hold up a round for long."""


class FunctionReward(Pointwise, AbstractContextManager["FunctionReward"]):
    """A reward function in its own process. Close it, or use it as a context manager."""

    def __init__(self, spec: FunctionSection, tasks: TasksConfig) -> None:
        """Starts the process, so that mistakes are said now. Raises `UserError` if there is no such function, or if
        nothing gives it an argument."""
        super().__init__()
        self.spec = spec
        self._process = GuardedProcess(COMMAND, Start(spec.model_dump(mode="json"), tasks.model_dump(mode="json")))
        self._trouble = Trouble()
        try:
            self._process.start()
        except BaseException:
            self._process.close()
            raise

    @property
    def trouble(self) -> str:
        """The first failure, the function and how many there were: "function 'm:f': KeyError: 'a' (64 of 64 answers
        failed)"; empty if there was none."""
        return str(self._trouble)

    @property
    def counts(self) -> tuple[int, int]:
        """Answers that the function failed on so far, and all that it was given."""
        return self._trouble.failed, self._trouble.tried

    def close(self) -> None:
        with self._lock:
            self._process.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _score(self, pairs: list[Pair]) -> list[float | None]:
        values: list[float | None] = [FAILED] * len(pairs)
        fit = [i for i, (_, text) in enumerate(pairs) if len(text) <= MAX_TEXT]
        self.failures["too long"] += len(pairs) - len(fit)
        calls = [Call(pairs[i][0].id, pairs[i][0].prompt, pairs[i][1]) for i in fit]
        self._trouble.count(len(calls))
        for i, value in zip(fit, self._values(calls), strict=True):
            values[i] = value
        return values

    def _values(self, calls: list[Call]) -> Iterator[float | None]:
        for batch in (calls[start : start + BATCH] for start in range(0, len(calls), BATCH)):
            whole = self._returned(batch)
            alone = len(batch) > 1 and whole.failure
            for result in [self._returned([call]) for call in batch] if alone else [whole]:
                if result.failure:
                    self._fail(result.failure, result.detail)
                yield from [FAILED] if result.failure else map(self._value, result.values)

    def _returned(self, calls: list[Call]) -> Returned:
        timeout = self.spec.timeout * (1 if len(calls) == 1 else 1 + len(calls) / SHARE)
        try:
            self._process.send(calls)
            result = _returned.decode(self._process.receive(timeout, wall=timeout))  # a function may wait for others
        except TimeoutError:
            return Returned(failure="timeout", detail=f"no result within {timeout:g} s")
        except EOFError:
            return Returned(failure="crash", detail="its process died")
        except BaseException:
            self._process.renew()
            raise
        if not result.failure and len(result.values) != len(calls):
            counts = f"{len(result.values)} values for {len(calls)} completions"
            raise UserError(f"reward function {self.spec.function!r} returned {counts}: it must return one for each")
        return result

    def _value(self, value: float | None) -> float | None:
        """As it is; None where the function does not apply, as in TRL."""
        if value is not None and abs(value) > LARGEST:
            self._fail("infinite", f"it returned {value}")
            return FAILED
        return value

    def _fail(self, reason: str, detail: str) -> None:
        self.failures[reason] += 1
        self._trouble.add(f"function {self.spec.function!r}", detail or reason)


_returned = msgspec.msgpack.Decoder(Returned)
