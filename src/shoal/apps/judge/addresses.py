"""What an address may do, before anything that it sends is read: requests and new keys.

An address that asks for too much, or sends what no honest program does, is shut out for a while, each time for twice as
long: a connection that is cut at once costs some microseconds, a request a thousand. Many nodes behind one address
share its rates, so that these are generous; behind a proxy all do, and the proxy has to do this instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal.swarm.limits import Bucket, Recent

ADDRESSES = 65_536
"""Addresses that are remembered."""
OFFENCE = 10.0
"""Requests that one costs which no honest program sends."""
LONGEST = 3600.0


class Meter(Bucket):
    """A bucket from which several can be taken at once."""

    def take(self, now: float, cost: float = 1.0) -> bool:
        self._tokens = min(self.burst, self._tokens + self.rate * max(0.0, now - self._at))
        self._at = max(self._at, now)
        if self._tokens < cost:
            return False
        self._tokens -= cost
        return True

    def wait(self, now: float) -> float:
        """Seconds until one may pass."""
        missing = 1.0 - self._tokens - self.rate * max(0.0, now - self._at)
        return max(0.0, missing / self.rate)


@dataclass(frozen=True)
class Rates:
    """Of one address."""

    connections: int = 64
    """At a time. 0: no bounds at all, for judges behind a proxy."""
    requests: float = 50.0
    """A second; four seconds' worth at once."""
    newcomers: float = 60.0
    """New keys a minute, and as many at once."""
    shut: float = 10.0
    """Seconds for which it is shut out the first time."""


@dataclass
class Visitor:
    """An address as it is remembered."""

    requests: Meter
    newcomers: Meter
    known: bool = False
    """Whether a new key has been let in."""
    shut_until: float = 0.0
    times: int = 0


class Addresses:
    """The books. Used by one thread."""

    def __init__(self, rates: Rates, clock: Callable[[], float]) -> None:
        self.rates, self.clock = rates, clock
        self._visitors: Recent[str, Visitor] = Recent(ADDRESSES, self._visitor)

    def may_enter(self, address: str) -> bool:
        """Whether it may connect: it is not shut out."""
        if not self.rates.connections:
            return True
        return address not in self._visitors or self.clock() >= self._visitors[address].shut_until

    def request(self, address: str, cost: float = 1.0) -> bool:
        """Whether one more request may pass. Who goes on when none may is shut out."""
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
        """It sent what no honest program does."""
        self.request(address, OFFENCE)

    def newcomer(self, address: str) -> bool:
        """Whether a new key may come from there."""
        return not self.rates.connections or self._visitors[address].newcomers.take(self.clock())

    def is_known(self, address: str) -> bool:
        """Whether a new key from there has been let in, as far as is remembered."""
        return bool(self.rates.connections) and self._visitors[address].known

    def let_in(self, address: str) -> None:
        """One has."""
        self._visitors[address].known = True

    def _visitor(self) -> Visitor:
        now, rates = self.clock(), self.rates
        requests, newcomers = rates.requests, rates.newcomers
        return Visitor(Meter(requests, 4 * requests, now), Meter(newcomers / 60, max(1.0, newcomers), now))
