"""Which clients stay when a server has too many connections.

    quota: Quota[Connection] = Quota(256)
    quota.enter(client)      # False: there is no room. Another client may be `cut` to make room
    quota.prove(client)      # the client has shown that it may be here, for instance by a token
    quota.leave(client)

A full server accepts newcomers, since silent clients could otherwise shut everybody out. A newcomer replaces the oldest
unproven client of the address that has the most unproven clients: who opens a thousand connections displaces only his
own. A proven client makes room only while it is idle. This machine's own address counts as `LOOPBACK_SHARE` addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
LOOPBACK_SHARE: Final = 64


class Client(Protocol):
    """What a quota counts."""

    @property
    def address(self) -> str: ...

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        ...

    def cut(self) -> None:
        """Ends the client: another one has its place."""
        ...


C = TypeVar("C", bound=Client)
Groups = dict[str, dict[C, None]]
"""Clients by address, the oldest first."""


class Quota(Generic[C]):
    """For one thread."""

    def __init__(self, most: int, each: int | None = None) -> None:
        """`most`: clients of all addresses together. `each`: of one address; 0 or None for no such bound."""
        self.most, self.each = most, each or most
        self._unproven: Groups[C] = {}
        self._proven: Groups[C] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[C]:
        for groups in (self._unproven, self._proven):
            for group in groups.values():
                yield from group

    def enter(self, client: C) -> bool:
        """Whether `client` may stay; another one may be cut for it. Call `leave` for each that may stay."""
        _add(self._unproven, client)
        self._count += 1
        own = client.address
        if len(self._unproven.get(own, ())) + len(self._proven.get(own, ())) > self.each:
            loser = self._loser(client, own)
        elif self._count > self.most:
            loser = self._loser(client)
        else:
            return True
        self.leave(loser)
        if loser is not client:
            loser.cut()
        return loser is not client

    def prove(self, client: C) -> None:
        """`client` may be here. One that was cut stays so."""
        if client in self._unproven.get(client.address, ()):
            _remove(self._unproven, client)
            _add(self._proven, client)

    def leave(self, client: C) -> None:
        """`client` is gone. Does nothing if it was cut before."""
        for groups in (self._unproven, self._proven):
            if client in groups.get(client.address, ()):
                _remove(groups, client)
                self._count -= 1

    def _loser(self, newcomer: C, address: str | None = None) -> C:
        """Who makes room for `newcomer`, among the clients of `address` or of all: perhaps the newcomer itself."""
        groups = [group for at, group in self._unproven.items() if address in (None, at)]
        others = [group for group in groups if len(group) > (newcomer in group)]
        if others:
            return next(client for client in max(others, key=_weight) if client is not newcomer)
        groups = [group for at, group in self._proven.items() if address in (None, at)]
        idle = (one for group in sorted(groups, key=_weight, reverse=True) for one in group if not one.busy)
        return next(idle, newcomer)


def _weight(group: dict[Any, None]) -> float:
    """How many clients an address has, for comparing addresses."""
    address = next(iter(group)).address
    return len(group) / (LOOPBACK_SHARE if address in LOOPBACK else 1)


def _add(groups: Groups[C], client: C) -> None:
    groups.setdefault(client.address, {})[client] = None


def _remove(groups: Groups[C], client: C) -> None:
    group = groups[client.address]
    del group[client]
    if not group:
        del groups[client.address]
