"""The way in: whose turn it is, and what becomes of what takes long."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fakes import question, rollout
from test_network import until

from shoal.admission.admission import Claim, SlowAnswers
from shoal.admission.intake import RECEIVED, Intake
from shoal.admission.limits import AdmissionLimits
from shoal.admission.peers import Peer
from shoal.rollout import Rollout, Scored


class Gate:
    """Admits everything; what says "slow" only with patience, and then as soon as `open` is set."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.peer = Peer(AdmissionLimits(), 0.0)

    def attribute(self, id: str, data: bytes) -> Claim:
        return Claim(Rollout.decode(data), b"", self.peer)

    def examine(self, claim: Claim, patient: bool) -> tuple[Scored, float]:
        if claim.rollout.node == "slow":
            if not patient:
                raise SlowAnswers(0.1)
            self.open.wait()
        return self._scored(claim.rollout), 0.0

    def _scored(self, one: Rollout) -> Scored:
        return Scored(one, question(1), (1.0, 0.0))


@contextmanager
def intake() -> Iterator[tuple[Intake, Gate]]:
    gate = Gate()
    one = Intake(gate, lambda id, scored: None)
    one.start()
    try:
        yield one, gate
    finally:
        gate.open.set()
        one.close()


def test_quick_ones_do_not_wait_for_slow_ones() -> None:
    with intake() as (one, gate):
        for round in range(10):
            one.put("slow", rollout(node="slow", round=round).encode())
            one.put("ada", rollout(node="ada", round=round).encode())
        got: list[Scored] = []
        until(lambda: got.extend(one.take()) or len(got) == 10)
        assert {scored.rollout.node for scored in got} == {"ada"}
        gate.open.set()
        until(lambda: got.extend(one.take()) or len(got) == 20)


def test_what_waits_for_the_trainer_is_shared_by_makers() -> None:
    """So a node that sends much while an update takes long does not displace what others sent."""
    with intake() as (one, _):
        one.put("ada", rollout(node="ada", round=1).encode())
        until(lambda: one._received)
        for round in range(2 * RECEIVED[0]):
            one.put("flood", rollout(node="flood", round=round).encode())
            until(lambda: not len(one._inbox))
        until(lambda: one.lost >= RECEIVED[0])
        counts = Counter(scored.rollout.node for scored in one.take())
        assert counts == {"ada": 1, "flood": RECEIVED[0]}


def test_messages_wait_until_the_node_s_own_model_is_known() -> None:
    """Before that its control tokens are not known, so they could not be refused."""
    gate = Gate()
    one = Intake(gate, lambda id, scored: None)
    try:
        one.put("ada", rollout(node="ada", round=1).encode())
        time.sleep(0.3)
        assert (len(one._inbox), one.take()) == (1, [])
        one.start()
        until(lambda: len(one._received) == 1)
    finally:
        gate.open.set()
        one.close()
