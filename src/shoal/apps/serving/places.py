"""Who has a place when there are more guests than places: connections of a server, or its event streams.

    places: Places[Connection] = Places(256)
    places.enter(guest)      # False: there is no place. Another guest may lose its own: it is `cut`
    places.prove(guest)      # it has shown that it may be here, by a token for instance
    places.leave(guest)

A full house does not turn newcomers away, since silent guests would then shut everybody out. A newcomer takes the place
of the oldest unproven guest of the address that has the most unproven guests: who opens a thousand connections
displaces himself. Proven guests make room only while they are idle, or for a proven newcomer whose address has fewer.
This machine's own browser counts as `LOOPBACK_SHARE` addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
LOOPBACK_SHARE: Final = 64


class Guest(Protocol):
    """One that has a place."""

    @property
    def address(self) -> str: ...

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        ...

    def cut(self) -> None:
        """It has lost its place."""
        ...


G = TypeVar("G", bound=Guest)
Groups = dict[str, dict[G, None]]
"""Guests by address, the oldest first."""


class Places(Generic[G]):
    """Used by one thread."""

    def __init__(self, most: int, each: int | None = None) -> None:
        """`most`: guests of all addresses together. `each`: of one address; 0 or None: no bound of its own."""
        self.most, self.each = most, each or most
        self._unproven: Groups[G] = {}
        self._proven: Groups[G] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[G]:
        for groups in (self._unproven, self._proven):
            for group in groups.values():
                yield from group

    def enter(self, guest: G, proven: bool = False) -> bool:
        """Whether `guest` has a place now. Another guest may be cut for it. `leave` goes with each that has one."""
        _add(self._proven if proven else self._unproven, guest)
        self._count += 1
        if self._held(guest.address) > self.each:
            loser = self._loser(guest, [guest.address])
        elif self._count > self.most:
            loser = self._loser(guest, None)
        else:
            return True
        self.leave(loser)
        if loser is not guest:
            loser.cut()
        return loser is not guest

    def prove(self, guest: G) -> None:
        """`guest` may be here. One that has lost its place does not get it back."""
        if guest in self._unproven.get(guest.address, ()):
            _remove(self._unproven, guest)
            _add(self._proven, guest)

    def leave(self, guest: G) -> None:
        """`guest` gives up its place, if it still has one."""
        for groups in (self._unproven, self._proven):
            if guest in groups.get(guest.address, ()):
                _remove(groups, guest)
                self._count -= 1

    def _held(self, address: str) -> int:
        return len(self._unproven.get(address, ())) + len(self._proven.get(address, ()))

    def _loser(self, newcomer: G, addresses: Sequence[str] | None) -> G:
        """Who gives up a place for `newcomer`, among the guests of `addresses` or of all: perhaps itself."""
        groups = _of(self._unproven, addresses)
        others = [group for group in groups if len(group) > (newcomer in group)]
        if others:
            return next(guest for guest in max(others, key=_weight) if guest is not newcomer)
        groups = _of(self._proven, addresses)
        for group in sorted(groups, key=_weight, reverse=True):
            for guest in group:
                if guest is not newcomer and not guest.busy:
                    return guest
        if newcomer in self._proven.get(newcomer.address, ()):
            largest, own = max(groups, key=_weight), self._proven[newcomer.address]
            return next(iter(largest)) if _weight(largest) > _weight(own) else newcomer
        return newcomer


def _of(groups: Groups[G], addresses: Sequence[str] | None) -> list[dict[G, None]]:
    return [*groups.values()] if addresses is None else [groups[one] for one in addresses if one in groups]


def _weight(group: dict[Any, None]) -> float:
    """How many guests an address has, for comparisons between addresses."""
    address = next(iter(group)).address
    return len(group) / (LOOPBACK_SHARE if address in LOOPBACK else 1)


def _add(groups: Groups[G], guest: G) -> None:
    groups.setdefault(guest.address, {})[guest] = None


def _remove(groups: Groups[G], guest: G) -> None:
    group = groups[guest.address]
    del group[guest]
    if not group:
        del groups[guest.address]
