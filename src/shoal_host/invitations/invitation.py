"""An invitation: a swarm's signed entry as one word to paste, with the secret of a private swarm.

    word = written(sign_entry(entry, identity))            # SHOAL:AEOPQ...
    opened = read_invitation(word, now=time.time())        # an `Invitation`, or `BadEntry` with the reason

Whoever passes it on can change nothing: what is signed is made again from what was read, so what is verified is what is
used. No shell, chat or terminal changes Base32 in capitals.

    SHOAL: base32( version, 1 byte | MessagePack array: entry, signature, secret )
"""

import base64
import binascii
import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from shoal.identity.keys import Identity, verify
from shoal.identity.secret import SHORTEST
from shoal.untrusted import UNDECODABLE, printable
from shoal_host.invitations.entry import BadEntry, Entry, check, date

PREFIX: Final = "SHOAL:"
VERSION: Final = 3
LONGEST: Final = 4096
"""Characters of an invitation."""
AHEAD: Final = 600
"""Seconds by which a host's clock may be ahead."""
SECRET: Final = rf"[!-~]{{{SHORTEST},128}}"


class Invitation(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """A swarm that somebody is invited to."""

    entry: Entry
    signature: bytes
    secret: Annotated[str, Meta(pattern=rf"\A({SECRET})?\Z")] = ""
    """Of a private swarm. The host does not sign it."""


_decoder = msgspec.msgpack.Decoder(Invitation)


def sign_entry(entry: Entry, identity: Identity, secret: str = "") -> Invitation:
    """The invitation of the entry's host. Raises `BadEntry` for an entry that nobody would take."""
    check(entry)
    return Invitation(entry, identity.sign(entry.statement), secret)


def written(invitation: Invitation) -> str:
    """The word that `read_invitation` reads. Raises `BadEntry` if it would be too long, or its secret is none."""
    if invitation.secret and not re.fullmatch(SECRET, invitation.secret):
        raise BadEntry(f"a secret has {SHORTEST} to 128 visible characters")
    body = bytes([VERSION]) + msgspec.msgpack.encode(invitation)
    word = PREFIX + base64.b32encode(body).decode().rstrip("=")
    if len(word) > LONGEST:
        raise BadEntry(f"an invitation of {len(word)} characters, of at most {LONGEST}")
    return word


def read_invitation(word: str, now: float) -> Invitation:
    """The invitation in `word`, if it is within bounds, signed by its key and holds `now` (seconds since 1970). Raises
    `BadEntry`, and nothing else."""
    if len(word) > LONGEST:
        raise BadEntry(f"too long: {len(word):,} characters, of at most {LONGEST:,}")
    if not re.fullmatch(rf"{PREFIX}[A-Z2-7]+", word):
        raise BadEntry(f"not an invitation: {PREFIX} and then letters A to Z and digits 2 to 7, and nothing else")
    try:
        text = word.removeprefix(PREFIX)
        body = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raise BadEntry("cut or changed: copy the whole line") from None
    if body[0] != VERSION:
        way = "update shoal" if body[0] > VERSION else "ask the host for a new one, by a newer shoal"
        raise BadEntry(f"it has version {body[0]}, and this shoal reads version {VERSION}: {way}")
    try:
        invitation = _decoder.decode(body[1:])
    except UNDECODABLE as error:
        what = f" ({printable(str(error), 120)})" if isinstance(error, msgspec.ValidationError) else ""
        raise BadEntry(f"malformed: cut or changed, so copy the whole line{what}") from None
    entry = invitation.entry
    if not verify(bytes.fromhex(entry.key), invitation.signature, entry.statement):
        raise BadEntry("bad signature: copy the whole line, or ask the host for it, who did not write this")
    if entry.signed > now + AHEAD:
        raise BadEntry(f"from the future: signed on {date(entry.signed)}, so the host's clock is wrong or this one")
    if entry.expires <= now:
        raise BadEntry(f"expired on {date(entry.expires)}: ask the host for a new one")
    check(entry)
    if written(invitation) != word:
        raise BadEntry("malformed: an invitation is written in one way only")
    return invitation
