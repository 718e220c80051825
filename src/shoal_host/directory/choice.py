"""Which entry a name means, and whether its addresses are safe to connect to.

    choice = choose(listing, "lagoon", known)      # or "lagoon@3f2a..." for the host with that key
    entry, left_out = within_reach(choice.listed, allow_private=False)
    remember(entry)

Names are not unique. The first time a name is joined, its host's key is kept beside the identity; from then on the name
belongs to that key. Another key with the name is said aloud and joined only if the user names that key.
"""

from __future__ import annotations

import ipaddress
import queue
import re
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from shoal.errors import UserError
from shoal.identity.keys import identity_path, replace
from shoal.invitations.entry import Entry
from shoal.untrusted import printable, read_regular
from shoal_host.directory.listing import Listed, Listing, is_url

KNOWN: Final = "known_swarms"
MAX_KNOWN: Final = 2**20
"""Bytes of the file of known names."""
DIGITS: Final = 16
"""Hex digits of a key that stand for the whole: nobody makes another key that begins so."""
PATIENCE: Final = 5.0
"""Seconds in which all addresses of an entry are looked up."""

_WORD = re.compile(rf"([a-z0-9][a-z0-9-]{{0,31}})(?:@([0-9a-f]{{{DIGITS},64}}))?")


@dataclass(frozen=True)
class Choice:
    """The entry that a name means."""

    listed: Listed
    is_new: bool
    """Whether this host was not known by this name."""
    note: str = ""
    """What the user should know about others with this name."""


def is_name(word: str) -> bool:
    """Whether `word` is a swarm's name, NAME or NAME@KEY, and no address: that has a port."""
    return _WORD.fullmatch(word) is not None


def choose(listing: Listing, word: str, known: Mapping[str, str]) -> Choice:
    """The entry that `word` means. Raises `UserError` if there is none, or if the user has to choose."""
    match = _WORD.fullmatch(word)
    assert match is not None
    name, prefix = match[1], match[2] or ""
    named = [one for one in listing.entries if one.entry.name == name]
    fitting = [one for one in named if one.entry.key.startswith(prefix or known.get(name, ""))]
    if not named:
        raise UserError(_absent(listing, name))
    if prefix and len(fitting) != 1:
        raise UserError(f"no host of '{name}' has a key that begins with {prefix}; there are {hosts(named)}")
    if name in known and not fitting:
        raise UserError(
            f"ANOTHER HOST: the name '{name}' belongs to the key {known[name][:DIGITS]}, which you joined or "
            f"watched before, and only {hosts(named)} has it now: if you trust that one, write "
            f"{spelled(named[0].entry)}"
        )
    if len(fitting) > 1:
        raise UserError(f"several hosts use the name '{name}': choose one of {hosts(named)}")
    [chosen] = fitting
    others = [one for one in named if one is not chosen]
    note = f"another host uses the name '{name}', too: {hosts(others)}" if others else ""
    return Choice(chosen, known.get(name) != chosen.entry.key, note)


def spelled(entry: Entry) -> str:
    """How a user names this host's entry."""
    return f"{entry.name}@{entry.key[:DIGITS]}"


def hosts(listed: Iterable[Listed]) -> str:
    """The hosts of these entries, as a message names them; the first few."""
    found = [f"{spelled(one.entry)} ({one.entry.host})" for one in listed]
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


def known_swarms() -> dict[str, str]:
    """The key that each known name belongs to. Raises `UserError` if the file is damaged."""
    path = identity_path().with_name(KNOWN)
    if not path.exists():
        return {}
    try:
        known = dict(line.split() for line in read_regular(path, MAX_KNOWN).decode().splitlines() if line.strip())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError:
        raise UserError(f"{path} is damaged: each line must have a swarm's name and its host's key") from None
    return known


def remember(entry: Entry) -> None:
    """From now on the entry's name belongs to its host. Raises `UserError`."""
    path = identity_path().with_name(KNOWN)
    known = known_swarms() | {entry.name: entry.key}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    replace(path, "".join(f"{name} {key}\n" for name, key in sorted(known.items())).encode())


def within_reach(listed: Listed, allow_private: bool) -> tuple[Entry, list[str]]:
    """The entry with the addresses that may be connected to, and those that were left out because nobody knows them.

    What a directory at a URL says must not lead into this user's own networks, unless they `allow_private`. Raises
    `UserError` if it does, or if no relay is left.
    """
    entry = listed.entry
    if allow_private or not is_url(listed.source):
        return entry, []
    found = looked_up(set(entry.hosts.values()), PATIENCE)
    for address, host in entry.hosts.items():
        if inside := [one for one in found[host] if not is_public(one)]:
            shown = host if inside[0] == host else f"{host} ({inside[0]})"
            raise UserError(
                f"'{entry.name}' would connect to {printable(shown, 120)}, which is no public address: "
                f"its host is wrong or lies; --allow-private takes it (`{printable(address, 120)}`)"
            )
    lost = [address for address, host in entry.hosts.items() if not found[host]]
    relays = tuple(relay for relay in entry.relays if relay not in lost)
    if not relays:
        raise UserError(f"none of the relays of '{entry.name}' has a known address: {printable(', '.join(lost), 200)}")
    judges = tuple(judge for judge in entry.judges if judge not in lost)
    return msgspec.structs.replace(entry, relays=relays, judges=judges), lost


def looked_up(hosts: Iterable[str], patience: float) -> dict[str, list[str]]:
    """The IP addresses of each of `hosts`; none for those that are not known within `patience` seconds."""
    found: dict[str, list[str]] = {host: [] for host in hosts}
    box: queue.SimpleQueue[tuple[str, list[str]]] = queue.SimpleQueue()
    for host in found:
        threading.Thread(target=lambda host: box.put((host, _addresses(host))), args=(host,), daemon=True).start()
    end = time.monotonic() + patience
    for _ in found:
        try:
            host, addresses = box.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        found[host] = addresses
    return found


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the internet, also where it hides an IPv4 address."""
    one = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(one, ipaddress.IPv6Address):
        translated = one in ipaddress.ip_network("64:ff9b::/96")
        inner = ipaddress.IPv4Address(int(one) & 0xFFFFFFFF) if translated else one.ipv4_mapped or one.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if one.is_site_local or one in ipaddress.ip_network("64:ff9b:1::/48"):  # of one network alone
            return False
    return one.is_global and not one.is_multicast


def _addresses(host: str) -> list[str]:
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError):
        return []


def _absent(listing: Listing, name: str) -> str:
    bad = next((one for one in listing.unusable if one.what == name), None)
    if bad:
        return f"the entry '{name}' of {bad.source} cannot be used: {bad.why}"
    names = sorted({one.entry.name for one in listing.entries})
    there = f"there are {', '.join(names[:12])}{'...' if len(names) > 12 else ''}" if names else "none is listed"
    unread = [one.why for one in listing.unusable if not one.what]
    return "; ".join([f"no directory has a swarm '{name}'", there, *unread])
