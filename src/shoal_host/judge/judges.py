"""All judges of one node, asked side by side after a round.

    judges = Judges(["http://one.example.org:7460", "http://two.example.org:7460"], identity, model="guppy")
    row |= judges.ask(node.policy, node.round, seed)          # figures; None where there is no score
    judges.trouble                                            # a warning for the display, or ""

The policy answers the questions one by one. A round waits at most `patience` seconds for the questions, and as long
again for the scores. A judge that failed is left alone for a while, twice as long each time, so that a dead one costs
next to nothing. Whatever a judge does, nothing is raised here and training does not change.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, TypeVar

from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.policy.reading import is_too_much
from shoal.protocols import Policy
from shoal.rollout import Question
from shoal_host.judge.client import AskedQuestion, JudgeClient, JudgeUnavailable
from shoal_host.judge.messages import Receipt, Verdict

T = TypeVar("T")
Asked = Mapping[JudgeClient, AskedQuestion]
PATIENCE = 5.0
LONGEST = 600.0
"""Seconds for which a judge that fails is left alone at most."""
HEALTHY = {"open", "rate", "round", "crowded", "busy", "newcomers", "full"}
"""Refusals of a judge that works."""
PACE = "rate"
"""The refusal of a judge that gives one question in so many seconds, as it should: nobody is told."""


class Judges:
    """The judges of one node. Raises `UserError` for an address that is none."""

    def __init__(
        self,
        addresses: Sequence[str],
        identity: Identity,
        model: str = "",
        in_swarm: bool = True,
        display_name: str = "",
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model, self.in_swarm, self.display_name = model, in_swarm, display_name
        self.patience, self._clock = patience, clock
        self.clients = [JudgeClient(address, identity, patience) for address in dict.fromkeys(addresses)]
        self.trouble = ""
        """Which judges gave no score the last time, and why."""

    def ask(self, policy: Policy, round: int, seed: int, own: Sequence[Question] = ()) -> dict[str, Any]:
        """The figures of this round: `judge/pass@1`, over the judges that gave a score, or None; `judge/questions`, how
        many those are; `judge/pass@1/N` of each, by its position. Empty without judges. `own`: the round's questions:
        a judge's may not be far longer (`shoal.policy.reading`)."""
        if not self.clients:
            return {}
        notes: dict[str, str] = {}
        said = round, self.model, self.in_swarm, self.display_name
        asking = {one: partial(one.ask, *said) for one in self._ready(notes)}
        asked = self._call(asking, notes)
        texts = self._answers(policy, asked, seed, own, notes)
        answering = {one: partial(one.answer, asked[one], text) for one, text in texts.items()}
        replies = self._call(answering, notes)
        later = [one.name for one, reply in replies.items() if isinstance(reply, Receipt)]
        notes |= dict.fromkeys(later, "it has the answer, and scores it later")
        found = [replies.get(one) for one in self.clients]
        scores = [reply.score if isinstance(reply, Verdict) else None for reply in found]
        self.trouble = "; ".join(f"judge {name}: {why}" for name, why in notes.items())
        known = [score for score in scores if score is not None]
        figures = {f"judge/pass@1/{place}": score for place, score in enumerate(scores, 1)}
        mean = fmean(known) if known else None
        return {"judge/pass@1": mean, "judge/questions": len(known), **(figures if len(scores) > 1 else {})}

    def close(self) -> None:
        for one in self.clients:
            if not one.busy:
                one.close()

    def _ready(self, notes: dict[str, str]) -> list[JudgeClient]:
        now, found = self._clock(), []
        for one in self.clients:
            if one.busy:
                notes[one.name] = "it has not replied yet"
            elif now < one.rest_until:
                notes |= {one.name: one.why} if one.why else {}
            else:
                found.append(one)
        return found

    def _answers(
        self, policy: Policy, asked: Asked, seed: int, own: Sequence[Question], notes: dict[str, str]
    ) -> dict[JudgeClient, str]:
        """One text for each question; "" where the policy gives none, which counts as wrong. A question that the policy
        cannot read, such as one that is too long, is left out."""
        texts = {}
        for one, each in asked.items():
            try:
                if is_too_much(policy, each.question, own):
                    raise UserError("it is far longer than this node's own")
                [group] = policy.generate([each.question], 1, seed)
            except UserError as error:
                notes[one.name] = f"its question has no answer here: {error}"
                continue
            if policy.trouble:
                notes["(the policy)"] = policy.trouble
            texts[one] = group[0].text if group else ""
        return texts

    def _call(self, calls: Mapping[JudgeClient, Callable[[], T]], notes: dict[str, str]) -> dict[JudgeClient, T]:
        """The results that come in time. Each call runs in a thread of its own, which may end later."""
        found: dict[JudgeClient, T] = {}

        def make(one: JudgeClient, call: Callable[[], T]) -> None:
            try:
                found[one] = call()
                one.failures, one.rest_until = 0, 0.0
            except Exception as error:  # whatever a judge provokes here, training goes on
                if not isinstance(error, JudgeUnavailable):
                    error = JudgeUnavailable(f"{type(error).__name__}: {error}"[:200])
                self._rest(one, error)
            finally:
                one.busy = False

        threads = []
        for one, call in calls.items():
            one.busy = True
            threads.append(threading.Thread(target=make, args=(one, call), name="shoal-judge", daemon=True))
            threads[-1].start()
        end = time.monotonic() + self.patience + 0.5
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        in_time = {}
        for one in calls:
            if one.busy:
                notes[one.name] = f"no reply in {self.patience:g} s"
            elif one in found:
                in_time[one] = found[one]
            elif one.why:
                notes[one.name] = one.why
        return in_time

    def _rest(self, one: JudgeClient, error: JudgeUnavailable) -> None:
        """Leaves a judge alone for a while: as long as it asks for, or longer each time that it fails."""
        if error.reason in HEALTHY:
            pause = min(LONGEST, error.retry_after or 0.0)
        else:
            one.failures += 1
            pause = min(LONGEST, self.patience * 2.0 ** min(one.failures, 10))
        one.rest_until = self._clock() + pause
        if error.reason == PACE:
            one.why = ""
            return
        one.why = f"{error}; asked again in {pause:.0f} s" if pause else str(error)  # the same until then: said once
