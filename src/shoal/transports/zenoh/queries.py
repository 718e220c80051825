"""The questions that a node asks its peers over Zenoh: what they have, and the rollouts that it missed (`offers`).

Anybody may answer, with anything and as much as he likes. So callbacks keep a bounded number of answers, and the thread
that asked checks them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import zenoh

from shoal.admission.queues import Newest
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.offers import MAX_BYTES, SEPARATOR, Offer, digest_of, open_offer

ANSWERS = 4096  # answers of a region that are looked at: those that come first
NEIGHBOUR_ANSWERS = 256  # answers to a question to one neighbour that are looked at; one is honest
TIMEOUT = 3.0  # seconds that an answer may take
MAX_FETCHED = 4 << 20  # bytes of rollouts that are accepted for one question

Answer = tuple[str, bytes]
"""The key expression of an answer, and its bytes."""


class Queries:
    """Questions on a session. Only one thread may call `survey` and `offers`."""

    def __init__(self, session: zenoh.Session, keys: Keys) -> None:
        self._session, self._keys = session, keys
        self._answers: Newest[Answer] = Newest(ANSWERS)

    def survey(self, prefix: str) -> list[Offer]:
        """The offers of the peers in a region. Waits while answers come, for `TIMEOUT` seconds at most."""
        answers: list[Answer] = []
        done, cancel = threading.Event(), zenoh.CancellationToken()

        def keep(answer: Answer) -> None:
            answers.append(answer)
            if len(answers) >= ANSWERS:
                done.set()

        self._get(self._keys.region(prefix), _first(ANSWERS, keep), done.set, cancel)
        done.wait(TIMEOUT)
        cancel.cancel()
        return self._opened(answers)

    def ask(self, id: str) -> None:
        """Asks a neighbour what it has; `offers` returns the answer."""
        self._get(self._keys.offers(id), _first(NEIGHBOUR_ANSWERS, lambda answer: self._answers.put([answer])))

    def offers(self) -> list[Offer]:
        """What neighbours answered since the last call."""
        return self._opened(self._answers.take())

    def fetch(self, id: str, digests: Iterable[bytes], on_rollout: Callable[[bytes], None]) -> None:
        """Asks a neighbour for the rollouts with these digests. Calls `on_rollout` with each, on a Zenoh thread; other
        answers are ignored."""
        wanted = set(digests)
        size = 0

        def arrived(reply: zenoh.Reply) -> None:
            nonlocal size
            sample = reply.ok
            if sample is None or size > MAX_FETCHED or not wanted:
                return
            size += len(sample.payload)
            data = sample.payload.to_bytes()
            digest = digest_of(data)
            if digest in wanted:
                wanted.discard(digest)
                on_rollout(data)

        want = SEPARATOR.join(digest.hex() for digest in digests)
        self._get(f"{self._keys.offers(id)}?want={want}", arrived)

    def _get(
        self,
        selector: str,
        arrived: Callable[[zenoh.Reply], None],
        done: Callable[[], Any] | None = None,
        cancel: zenoh.CancellationToken | None = None,
    ) -> None:
        self._session.get(
            selector,
            direct(arrived, done),
            target=zenoh.QueryTarget.ALL,
            consolidation=zenoh.ConsolidationMode.NONE,
            congestion_control=zenoh.CongestionControl.DROP,
            allowed_destination=zenoh.Locality.REMOTE,
            timeout=TIMEOUT,
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
    """A callback on Zenoh's own thread: the link waits while it runs. Otherwise Zenoh stores what comes faster than the
    callback runs, without a bound."""
    return zenoh.handlers.Callback(callback, done, indirect=False)


def _first(number: int, keep: Callable[[Answer], None]) -> Callable[[zenoh.Reply], None]:
    """A callback that keeps the first `number` answers that are small enough for an offer."""
    count = 0

    def arrived(reply: zenoh.Reply) -> None:
        nonlocal count
        sample = reply.ok
        if sample is not None and count < number and len(sample.payload) <= MAX_BYTES:
            count += 1
            keep((str(sample.key_expr), sample.payload.to_bytes()))

    return arrived
