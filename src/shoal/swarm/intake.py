"""The threads of admission: messages wait here for their turn, and what was admitted waits until it is asked for.

    put() -> inbox -> quick thread: attribute, examine -> take()
                            | takes long
                            v
                      patient thread: examine -> take()

What is scored at once never waits behind what takes long: the quick thread gives a message a twentieth of a second of
processor time, and hands over what needs more, with what comes next of the same node.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from shoal.rollout import Scored
from shoal.swarm.admission import FAST, Claim, SlowAnswers
from shoal.swarm.limits import Bucket, RecentKeys
from shoal.swarm.queues import FairQueue

logger = logging.getLogger(__name__)

CHECKS = 1500.0
"""Messages in a second that are looked at; a flood of more takes no more of the processor."""
LOOK = 2e-4
"""Seconds that it costs to look at a message which is then refused."""
INBOX = 128, 32 << 20
"""Messages of one node that wait to be looked at, and bytes of all."""
LATER = 16, 8 << 20
"""The same of those that take long to examine."""
RECEIVED = 64, 1024
"""Admitted rollouts of one node that wait for `take`, and of all."""
SLOW = 256
"""Nodes of which it is remembered that their messages take long."""
EARLY = 1024, 16 << 20
"""Messages that are kept until the first `take`, and bytes of them."""
FAREWELL = 2.0
"""Seconds that `close` waits for each thread."""


class Admitting(Protocol):
    """What decides (`admission.Admission`)."""

    @property
    def refused(self) -> Mapping[str, int]: ...

    def admit(self, messages: Sequence[tuple[str, bytes]]) -> list[Scored]: ...

    def attribute(self, id: str, data: bytes) -> Claim | None: ...

    def examine(self, claim: Claim, patient: bool) -> tuple[Scored | None, float]: ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


class Intake:
    """Messages on their way to the pool. `put` and `take` never wait."""

    def __init__(self, admission: Admitting, on_admitted: Callable[[str, Scored], None]) -> None:
        """`on_admitted` is told the id that a message came under, and what was admitted of it."""
        self.faults = 0
        """Errors of this program's own."""
        self._admission = admission
        self._on_admitted = on_admitted
        self._inbox: FairQueue[bytes] = FairQueue(*INBOX, entry=FAST)
        self._later: FairQueue[tuple[Claim, int]] = FairQueue(*LATER)
        self._slow = RecentKeys[str](SLOW)
        """Nodes whose last message took long: their next one is not tried at once."""
        self._received: FairQueue[Scored] = FairQueue(*RECEIVED)
        self._early: FairQueue[tuple[str, bytes]] | None = FairQueue(*EARLY)
        """What came before anybody took anything: a checkpoint may know it."""
        self._deciding = {False: threading.Lock(), True: threading.Lock()}
        """Held by the quick and by the patient thread while they decide on a message."""
        self._rate = Bucket(CHECKS, CHECKS / 10, time.monotonic())
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(step,), name=f"shoal-{name}", daemon=True)
            for name, step in (("admission", self._look), ("patient", self._look_again))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def lost(self) -> int:
        """Messages and admitted rollouts that gave way to newer ones."""
        return self._inbox.lost + self._later.lost + self._received.lost

    def put(self, id: str, data: bytes) -> None:
        """A message that came under the key expression of node `id`."""
        self._inbox.put(id, data, len(data))

    def take(self) -> list[Scored]:
        """What was admitted since the last call."""
        self._early = None
        return self._received.drain()

    def load(self, folder: Path) -> None:
        """What was admitted since the start is admitted again, by what the checkpoint knows: neighbours send their last
        rollouts as soon as one listens to them, and this node may have learned from those before."""
        with self._deciding[False], self._deciding[True]:
            early = self._early.drain() if self._early is not None else []
            self._early = None
            self._received.drain()
            self._admission.load(folder)
            for scored in self._admission.admit(early):
                self._received.put(scored.rollout.node, scored, 1)

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join(FAREWELL)

    def _run(self, step: Callable[[], None]) -> None:
        while not self._closed.is_set():
            try:
                step()
            except Exception:
                self.faults += 1
                if self.faults == 1 and not self._closed.is_set():
                    logger.exception("admitting a rollout failed; further such errors are counted only")

    def _look(self) -> None:
        if not self._rate.take(time.monotonic()):
            self._closed.wait(0.005)
            return
        if (taken := self._inbox.take(0.2)) is None:
            return
        id, data = taken
        seconds = LOOK
        with self._deciding[False]:
            if self._early is not None:
                self._early.put(id, taken, len(data))
            claim = self._admission.attribute(id, data)
            if claim is not None:
                seconds += self._examine(id, claim, len(data), patient=False)
                for queue in (self._inbox, self._later):
                    queue.move(id, claim.peer.known)
        self._inbox.charge(id, seconds)

    def _look_again(self) -> None:
        if (taken := self._later.take(0.2)) is None:
            return
        id, (claim, size) = taken
        with self._deciding[True]:
            seconds = self._examine(id, claim, size, patient=True)
        if seconds < FAST:
            self._slow.discard(id)
        self._later.charge(id, seconds)

    def _examine(self, id: str, claim: Claim, size: int, patient: bool) -> float:
        """The seconds that it took."""
        try:
            if id in self._slow and not patient:
                raise SlowAnswers(0.0)
            scored, seconds = self._admission.examine(claim, patient)
        except SlowAnswers as slow:
            self._slow.add(id)
            self._later.put(id, (claim, size), size)
            return slow.seconds
        if scored is not None:
            self._received.put(scored.rollout.node, scored, 1)
            self._on_admitted(id, scored)
        return seconds
