"""The threads of admission: messages wait here to be checked, and admitted rollouts wait until the node takes them.

    put() -> inbox -> quick thread: attribute, examine -> take()
                            | takes long
                            v
                      patient thread: examine -> take()

A message that is scored at once never waits behind one that takes long. The quick thread gives a message a twentieth of
a second of processor time. It hands over a message that needs more, and the next messages of the same node with it.
"""

import logging
import threading
import time
from collections.abc import Callable

from shoal.admission.admission import FAST, Admission, Claim, SlowAnswers
from shoal.admission.bounded import Bucket, FairQueue, RecentKeys
from shoal.rollout import Scored

logger = logging.getLogger(__name__)

CHECKS = 1500.0  # messages per second that are checked; a larger flood takes no more of the processor
CHECK_SECONDS = 2e-4  # that it costs to check a message which is then refused
INBOX = 128, 32 << 20  # messages of one node that wait to be checked, and bytes of all
LATER = 16, 8 << 20  # the same for those that take long
RECEIVED = 64, 1024  # admitted rollouts of one node that wait for `take`, and of all
SLOW = 256  # nodes that are remembered because their messages take long
CLOSE_TIMEOUT = 2.0  # seconds that `close` waits for each thread


class Intake:
    """Messages on their way to the pool. `put` and `take` never wait."""

    def __init__(self, admission: Admission, on_admitted: Callable[[str, Scored], None]) -> None:
        """`on_admitted` is called with the id of a rollout's maker, and with the rollout. Messages wait for `start`."""
        self.faults = 0
        """Errors of this program itself."""
        self._admission = admission
        self._on_admitted = on_admitted
        self._inbox: FairQueue[bytes] = FairQueue(*INBOX, entry=FAST)
        self._later: FairQueue[tuple[Claim, int]] = FairQueue(*LATER)
        self._slow = RecentKeys[str](SLOW)  # nodes whose last message took long: the next one goes to `_later` at once
        self._received: FairQueue[Scored] = FairQueue(*RECEIVED)
        self._rate = Bucket(CHECKS, CHECKS / 10, time.monotonic())
        self._closed, self._started = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(step,), name=f"shoal-{name}", daemon=True)
            for name, step in (("admission", self._check_next), ("patient", self._examine_next))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def lost(self) -> int:
        """Messages and admitted rollouts that newer ones displaced."""
        return self._inbox.lost + self._later.lost + self._received.lost

    def start(self) -> None:
        """The admission knows all that it needs: its node's model and tasks, and what a checkpoint says of earlier
        messages. Neighbours send their last ones again as soon as one listens to them."""
        self._started.set()

    def put(self, id: str, data: bytes) -> None:
        """A message came under the address `id` of a node."""
        self._inbox.put(id, data, len(data))

    def take(self) -> list[Scored]:
        """What was admitted since the last call."""
        return self._received.drain()

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join(CLOSE_TIMEOUT)

    def _run(self, step: Callable[[], None]) -> None:
        while not self._closed.is_set():
            if not self._started.wait(0.2):
                continue
            try:
                step()
            except Exception:
                self.faults += 1
                if self.faults == 1 and not self._closed.is_set():
                    logger.exception("admitting a rollout failed; further such errors are counted only")

    def _check_next(self) -> None:
        if not self._rate.take(time.monotonic()):
            self._closed.wait(0.005)
            return
        if (taken := self._inbox.take(0.2)) is None:
            return
        id, data = taken
        began = time.thread_time()
        claim = self._admission.attribute(id, data)
        seconds = max(CHECK_SECONDS, time.thread_time() - began)
        if claim is not None:
            seconds += self._examine(id, claim, len(data), patient=False)
            for queue in (self._inbox, self._later):
                queue.move(id, claim.peer.known)
        self._inbox.charge(id, seconds)

    def _examine_next(self) -> None:
        if (taken := self._later.take(0.2)) is None:
            return
        id, (claim, size) = taken
        seconds = self._examine(id, claim, size, patient=True)
        if seconds < FAST:
            self._slow.discard(id)
        self._later.charge(id, seconds)

    def _examine(self, id: str, claim: Claim, size: int, patient: bool) -> float:
        """Examines a message, or hands it over to the patient thread. Returns the seconds that it took."""
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
            self._on_admitted(claim.key.hex(), scored)
        return seconds
