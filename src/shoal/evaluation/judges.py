"""Several judges, asked side by side after a round: what a node calls, and all that it needs to know of judges.

    panel = Panel(["http://one.example.org:7460", "http://two.example.org:7460"], identity, model="guppy")
    row |= panel.examine(node.policy, node.round, seed)       # figures; None where there is none
    panel.trouble                                             # a line for whoever watches, or ""

All questions are answered in one batch. A round waits for `patience` seconds at most to get them, and as long again for
the scores; a judge that failed is left alone for a while, twice as long each time, so that a dead one costs next to
nothing. What a judge does cannot raise here, and cannot change what is trained on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, TypeVar

from shoal.evaluation.judge_client import Asked, Judge, Unheard
from shoal.evaluation.judge_messages import Receipt, Verdict
from shoal.identity.keys import Identity
from shoal.protocols import Policy

T = TypeVar("T")
PATIENCE = 5.0
LONGEST = 600.0
"""Seconds for which a judge that fails is left alone at most."""
PLAIN = {"open", "rate", "round", "crowded", "busy", "newcomers", "address", "full"}
"""Refusals of a judge that is well."""
BY_SELF = "self"


class Seat:
    """One judge, and how it went with it."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.busy = False
        """A call that was not waited for is still under way."""
        self.rest_until = 0.0
        self.failures = 0
        self.why = ""
        """It is left alone."""


class Panel:
    """The judges of one node. Raises `UserError` for what is no address."""

    def __init__(
        self,
        addresses: Sequence[str],
        identity: Identity,
        model: str = "",
        in_swarm: bool = True,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model, self.in_swarm, self.patience, self._clock = model, in_swarm, patience, clock
        self.seats = [Seat(Judge(address, identity, patience)) for address in dict.fromkeys(addresses)]
        self.trouble = ""
        """Which judges gave no score the last time, and why."""

    def examine(self, policy: Policy, round: int, seed: int) -> dict[str, Any]:
        """The figures of this round: `judge/pass@1`, over the judges that gave a score, or None; `judge/questions`, how
        many that were; `judge/pass@1/N` of each, by its place. Nothing without judges."""
        if not self.seats:
            return {}
        notes: dict[str, str] = {}
        asking = {seat: partial(seat.judge.ask, round, self.model, self.in_swarm) for seat in self._ready(notes)}
        asked = self._each(asking, notes)
        texts = self._answers(policy, list(asked.values()), seed, notes)
        answers = zip(asked.items(), texts, strict=True)
        given = self._each({seat: partial(seat.judge.answer, one, text) for (seat, one), text in answers}, notes)
        scores: list[float | None] = []
        for seat in self.seats:
            reply = given.get(seat)
            scores.append(reply.score if isinstance(reply, Verdict) else None)
            if isinstance(reply, Receipt):
                notes[seat.judge.name] = "it has the answer, and scores it later"
        self.trouble = "; ".join(f"judge {name}: {why}" for name, why in notes.items())
        known = [score for score in scores if score is not None]
        figures = {f"judge/pass@1/{place}": score for place, score in enumerate(scores, 1)}
        mean = fmean(known) if known else None
        return {"judge/pass@1": mean, "judge/questions": len(known), **(figures if len(scores) > 1 else {})}

    def close(self) -> None:
        for seat in self.seats:
            if not seat.busy:
                seat.judge.close()

    def _ready(self, notes: dict[str, str]) -> list[Seat]:
        now, found = self._clock(), []
        for seat in self.seats:
            if seat.busy:
                notes[seat.judge.name] = "it has not replied yet"
            elif now < seat.rest_until:
                notes[seat.judge.name] = seat.why
            else:
                found.append(seat)
        return found

    def _answers(self, policy: Policy, asked: list[Asked], seed: int, notes: dict[str, str]) -> list[str]:
        """One text for each question; "" where the policy gives none, which counts as wrong."""
        if not asked:
            return []
        groups = policy.generate([each.question for each in asked], 1, seed)
        if policy.trouble:
            notes["(the policy)"] = policy.trouble
        return [group[0].text if group else "" for group in groups]

    def _each(self, calls: Mapping[Seat, Callable[[], T]], notes: dict[str, str]) -> dict[Seat, T]:
        """What the calls give that come back in time, each made in a thread of its own."""
        found: dict[Seat, T] = {}
        failed: dict[Seat, str] = {}
        lock = threading.Lock()  # who is late writes on while others read

        def make(seat: Seat, call: Callable[[], T]) -> None:
            try:
                result = call()
            except Exception as error:  # whatever a judge provokes here, training goes on
                unheard = error if isinstance(error, Unheard) else Unheard(f"{type(error).__name__}: {error}"[:200])
                self._rest(seat, unheard)
                with lock:
                    failed[seat] = seat.why
            else:
                seat.failures, seat.rest_until = 0, 0.0
                with lock:
                    found[seat] = result
            finally:
                seat.busy = False

        threads = []
        for seat, call in calls.items():
            seat.busy = True
            threads.append(threading.Thread(target=make, args=(seat, call), name="shoal-judge", daemon=True))
            threads[-1].start()
        end = time.monotonic() + self.patience + 0.5
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        with lock:
            for seat in calls:
                if seat not in found:
                    notes[seat.judge.name] = failed.get(seat, f"no reply in {self.patience:g} s")
            return dict(found)

    def _rest(self, seat: Seat, error: Unheard) -> None:
        """Leaves a judge alone for a while: as long as it asks for, or longer each time that it fails."""
        if error.reason in PLAIN:
            pause = min(LONGEST, error.retry_after or 0.0)
        else:
            seat.failures += 1
            pause = min(LONGEST, self.patience * 2.0 ** min(seat.failures, 10))
        seat.rest_until = self._clock() + pause
        seat.why = f"{error}; asked again in {pause:.0f} s" if pause else str(error)  # the same until then: said once
