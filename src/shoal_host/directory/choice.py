"""Which entry a name means, and whether its addresses are safe to connect to.

    choice = choose(listing, "lagoon", known)      # or "lagoon@3f2a..." for the host with that key
    entry, left_out = within_reach(choice.listed, allow_private=False)

Names are not unique: one that was joined belongs to its host's key (`shoal.invitations.pinned`). Another key with this
name is said aloud and joined only if the user names that key.
"""

import ipaddress
import queue
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from shoal.errors import UserError
from shoal.invitations.entry import Entry
from shoal.invitations.pinned import DIGITS, spelled
from shoal.untrusted import printable
from shoal_host.directory.listing import Listed, Listing, is_url

PATIENCE: Final = 5.0
"""Seconds in which all addresses of an entry are looked up."""


@dataclass(frozen=True)
class Choice:
    """The entry that a name means."""

    listed: Listed
    is_new: bool
    """Whether this host was not known by this name."""
    note: str = ""
    """What the user should know about others with this name."""


def choose(listing: Listing, word: str, known: Mapping[str, str]) -> Choice:
    """The entry that `word` means. Raises `UserError` if there is none, or if the user has to choose."""
    name, _, prefix = word.partition("@")
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


def hosts(listed: Iterable[Listed]) -> str:
    """The hosts of these entries, as a message names them; the first few."""
    found = [f"{spelled(one.entry)} ({one.entry.host})" for one in listed]
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


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
