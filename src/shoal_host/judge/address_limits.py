"""What one address may do, before anything it sends is read: requests and new keys.

An address that asks for too much, or sends what no honest program sends, is shut out for a while, twice as long each
time: a connection that is cut at once costs microseconds, a request a thousand times that. Many nodes behind one
address share its limits, so these are generous. Behind a proxy all nodes do, and the proxy has to set limits instead.

`shoal_web.serving.connections` bounds connections, since no kept server does it by address. uvicorn's
`limit_concurrency`, hypercorn's `read_timeout` and granian's `backpressure` and `header_read_timeout` bound all clients
alike: a thousand silent connections of one address shut everybody out. None bounds a client that does not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal.admission.bounded import Bucket, Recent

ADDRESSES = 65_536
"""Addresses that are remembered."""
OFFENCE = 10.0
"""Requests that one costs which no honest program sends."""
LONGEST = 3600.0
"""Seconds for which an address is shut out at most."""


@dataclass(frozen=True)
class Rates:
    """The limits of one address."""

    connections: int = 64
    """At a time. 0: no limits at all, for judges behind a proxy."""
    requests: float = 50.0
    """Each second; four seconds' worth at once."""
    newcomers: float = 60.0
    """New keys each minute, and as many at once."""
    shut: float = 10.0
    """Seconds for which it is shut out the first time."""


@dataclass
class Visitor:
    """What is remembered of an address."""

    requests: Bucket
    newcomers: Bucket
    known: bool = False
    """Whether one of its keys has been accepted."""
    shut_until: float = 0.0
    times: int = 0
    """How often it has been shut out."""


class AddressLimits:
    """The limits of all addresses. For one thread."""

    def __init__(self, rates: Rates, clock: Callable[[], float]) -> None:
        self.rates, self.clock = rates, clock
        self._visitors: Recent[str, Visitor] = Recent(ADDRESSES, self._visitor)

    def may_enter(self, address: str) -> bool:
        """Whether it may connect, that is, is not shut out."""
        if not self.rates.connections or address not in self._visitors:
            return True
        return self.clock() >= self._visitors[address].shut_until

    def request(self, address: str, cost: float = 1.0) -> bool:
        """Whether one more request may pass. An address that exceeds its rate is shut out."""
        if not self.rates.connections:
            return True
        visitor, now = self._visitors[address], self.clock()
        if now < visitor.shut_until:
            return False
        if visitor.requests.take(now, cost):
            return True
        visitor.shut_until = now + min(LONGEST, self.rates.shut * 2.0**visitor.times)
        visitor.times = min(visitor.times + 1, 20)
        return False

    def offend(self, address: str) -> None:
        """It sent what no honest program sends."""
        self.request(address, OFFENCE)

    def newcomer(self, address: str) -> bool:
        """Whether a new key may come from this address."""
        return not self.rates.connections or self._visitors[address].newcomers.take(self.clock())

    def is_known(self, address: str) -> bool:
        """Whether a key from this address has been accepted, as far as is remembered."""
        return bool(self.rates.connections) and self._visitors[address].known

    def accept(self, address: str) -> None:
        """A new key from this address has been accepted."""
        self._visitors[address].known = True

    def _visitor(self) -> Visitor:
        now, rates = self.clock(), self.rates
        requests, newcomers = rates.requests, rates.newcomers
        return Visitor(Bucket(requests, 4 * requests, now), Bucket(newcomers / 60, max(1.0, newcomers), now))
