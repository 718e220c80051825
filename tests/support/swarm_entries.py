"""Entries of swarms for tests, good and bad."""

from __future__ import annotations

from typing import Any

from shoal.identity.keys import Identity
from shoal_host.invitations.entry import DAY, Entry, EntryTasks
from shoal_host.invitations.invitation import Invitation, sign_entry, written

NOW = 1_800_000_000
KEY = "ab" * 32


def entry(identity: Identity, **changes: Any) -> Entry:
    """An entry that everybody takes, with these changes."""
    whole: dict[str, Any] = {
        "name": "reef",
        "about": "Easy arithmetic.",
        "relays": ("relay.example.org:7447",),
        "tasks": EntryTasks("reef"),
        "judges": (f"https://judge.example.org#{KEY}",),
        "key": identity.id,
        "signed": NOW - DAY,
        "expires": NOW + DAY,
    }
    return Entry(**(whole | changes))


def signed(identity: Identity, secret: str = "", **changes: Any) -> Invitation:
    """The same, signed."""
    return sign_entry(entry(identity, **changes), identity, secret)


def signed_badly(identity: Identity, **changes: Any) -> str:
    """The word of any entry with a right signature: what a host's own program can make."""
    made = entry(identity, **changes)
    return written(Invitation(made, identity.sign(made.statement)))
