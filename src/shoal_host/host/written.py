"""A host signs its swarm's entry and writes it as an invitation (`shoal.invitations`).

word = written(sign_entry(entry, identity))            # SHOAL:AEOPQ...
"""

import re

from shoal.identity.keys import Identity
from shoal.identity.secret import SHORTEST
from shoal.invitations.entry import BadEntry, Entry, check
from shoal.invitations.invitation import LONGEST, SECRET, Invitation, Packed, word_of


def sign_entry(entry: Entry, identity: Identity, secret: str = "") -> Invitation:
    """The invitation of the entry's host. Raises `BadEntry` for an entry that nobody would take."""
    check(entry)
    return Invitation(entry, identity.sign(entry.statement), secret)


def written(invitation: Invitation) -> str:
    """The word that `read_invitation` reads. Raises `BadEntry` if it would be too long, or its secret is none."""
    entry = invitation.entry
    if invitation.secret and not re.fullmatch(SECRET, invitation.secret):
        raise BadEntry(f"a secret has {SHORTEST} to 128 visible characters")
    tasks = entry.tasks
    word = word_of(
        Packed(
            entry.name,
            entry.swarm,
            entry.about,
            list(entry.relays),
            (tasks.suite, list(tasks.only), tasks.examples, tasks.answer) if tasks else None,
            list(entry.judges),
            list(entry.rules),
            bytes.fromhex(entry.key),
            entry.signed,
            entry.expires,
            bytes.fromhex(entry.certificate or ""),
            invitation.signature,
            invitation.secret,
        )
    )
    if len(word) > LONGEST:
        raise BadEntry(f"an invitation of {len(word)} characters, of at most {LONGEST}")
    return word
