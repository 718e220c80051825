"""Asks peers what they have to give, and for the rollouts that one missed (`offers`), over Zenoh.

Whoever likes may answer, with whatever he likes and as much as he likes: callbacks only keep what fits, and everything
is checked on the thread that asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import zenoh

from shoal.swarm.neighbours import Keys
from shoal.swarm.offers import MAX_BYTES, SEPARATOR, Offer, digest_of, open_offer
from shoal.swarm.queues import Newest

ANSWERS: Final = 4096
"""Answers of a region that are looked at: as many as come first."""
EACH: Final = 256
"""Answers to a question to one neighbour that are looked at. One is honest."""
PATIENCE: Final = 3.0
"""Seconds that an answer may take."""
LARGEST: Final = 4 << 20
"""Bytes of rollouts that are taken for one question, at most."""

Answer = tuple[str, bytes]
"""The key expression that somebody answered under, and what he said."""


class Asking:
    """What a node asks on a session. `survey` and `offers` are for one thread."""

    def __init__(self, session: zenoh.Session, keys: Keys) -> None:
        self._session, self._keys = session, keys
        self._answers: Newest[Answer] = Newest(ANSWERS)

    def survey(self, prefix: str) -> list[Offer]:
        """What the peers of a region have. Waits for as long as answers come, but not longer than `PATIENCE`."""
        answers: list[Answer] = []
        done, cancel = threading.Event(), zenoh.CancellationToken()

        def keep(answer: Answer) -> None:
            answers.append(answer)
            if len(answers) >= ANSWERS:
                done.set()

        self._get(self._keys.region(prefix), _bounded(keep, ANSWERS), done.set, cancel)
        done.wait(PATIENCE)
        cancel.cancel()
        return self._opened(answers)

    def ask(self, id: str) -> None:
        """Asks a neighbour what it has; `offers` will tell."""
        self._get(self._keys.offers(id), _bounded(lambda answer: self._answers.put([answer]), EACH))

    def offers(self) -> list[Offer]:
        """What neighbours answered since the last call."""
        return self._opened(self._answers.take())

    def fetch(self, id: str, digests: Iterable[bytes], take: Callable[[bytes], None]) -> None:
        """Asks a neighbour for rollouts; `take` is called with each, on a thread of Zenoh's. What was not asked for is
        left out."""
        wanted = set(digests)
        taken = 0

        def arrived(reply: zenoh.Reply) -> None:
            nonlocal taken
            sample = reply.ok
            if sample is None or taken > LARGEST or not wanted:
                return
            taken += len(sample.payload)
            data = sample.payload.to_bytes()
            digest = digest_of(data)
            if digest in wanted:
                wanted.discard(digest)
                take(data)

        question = SEPARATOR.join(digest.hex() for digest in digests)
        self._get(f"{self._keys.offers(id)}?want={question}", arrived)

    def _get(
        self,
        question: str,
        arrived: Callable[[zenoh.Reply], None],
        done: Callable[[], Any] | None = None,
        cancel: zenoh.CancellationToken | None = None,
    ) -> None:
        self._session.get(
            question,
            direct(arrived, done),
            target=zenoh.QueryTarget.ALL,
            consolidation=zenoh.ConsolidationMode.NONE,
            congestion_control=zenoh.CongestionControl.DROP,
            allowed_destination=zenoh.Locality.REMOTE,
            timeout=PATIENCE,
            cancellation_token=cancel,
        )

    def _opened(self, answers: Iterable[Answer]) -> list[Offer]:
        now = time.time()
        offers: dict[str, Offer] = {}
        for key, data in answers:
            offer = None if key in offers else open_offer(self._keys, key, data, now)
            if offer is not None:
                offers[key] = offer
        return list(offers.values())


def direct(callback: Callable[[Any], object], done: Callable[[], object] | None = None) -> Callable[[Any], Any]:
    """A callback on Zenoh's own thread: the link waits while it runs. Otherwise Zenoh would keep without a bound what
    comes faster than it is called."""
    return zenoh.handlers.Callback(callback, done, indirect=False)


def _bounded(keep: Callable[[Answer], None], most: int) -> Callable[[zenoh.Reply], None]:
    """Zenoh's callback: keeps the first answers that may be offers."""
    count = 0

    def arrived(reply: zenoh.Reply) -> None:
        nonlocal count
        sample = reply.ok
        if sample is not None and count < most and len(sample.payload) <= MAX_BYTES:
            count += 1
            keep((str(sample.key_expr), sample.payload.to_bytes()))

    return arrived
