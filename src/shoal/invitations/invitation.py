"""An invitation: a swarm's signed entry as one word to paste or to scan, with the secret of a private swarm.

    word = written(Invitation(signed))                     # SHOAL:AEOPQ...
    opened = read_invitation(word, now=time.time())        # an `Invitation`, or `BadEntry` with the reason

It is an entry and nothing else, so all that holds for entries holds here: what it may set, how long it holds, and that
its host has signed it. Base32 in capitals makes the smallest QR code, and no shell, chat or terminal changes it.

    SHOAL: base32( checksum of 4 bytes | version, 1 byte | MessagePack array of the fields )
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from shoal.identity.secret import SHORTEST
from shoal.invitations.entry import VERSION as ENTRY_VERSION
from shoal.invitations.entry import BadEntry, SignedEntry, open_entry
from shoal.untrusted import UNDECODABLE, printable

PREFIX: Final = "SHOAL:"
VERSION: Final = 1
LONGEST: Final = 4096
"""Characters of an invitation."""
CHECKSUM: Final = 4
"""Bytes. It finds lines that were cut or mistyped; the signature finds what was changed on purpose."""
SECRET: Final = rf"[!-~]{{{SHORTEST},128}}"

_WORD = re.compile(rf"{PREFIX}[A-Z2-7]+")


@dataclass(frozen=True)
class Invitation:
    """A swarm that somebody is invited to."""

    signed: SignedEntry
    secret: str = ""
    """Of a private swarm."""


class _Packed(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """An entry with keys and hashes as bytes. `open_entry` checks all that stands in it."""

    name: str
    swarm: str
    about: str
    relays: list[str]
    tasks: tuple[str, list[str], int | str, str] | None
    judges: list[str]
    rules: list[str]
    key: bytes
    signed: int
    expires: int
    certificate: bytes
    signature: bytes
    secret: Annotated[str, Meta(pattern=rf"\A({SECRET})?\Z")]


_decoder = msgspec.msgpack.Decoder(_Packed)


def is_invitation(word: str) -> bool:
    """Whether `word` is meant as an invitation; it may be damaged."""
    return word.upper().startswith(PREFIX)


def written(invitation: Invitation) -> str:
    """The word that `read_invitation` reads. Raises `ValueError` if it would be too long, or its secret is none."""
    entry, signature = invitation.signed.entry, invitation.signed.signature
    if invitation.secret and not re.fullmatch(SECRET, invitation.secret):
        raise ValueError(f"a secret has {SHORTEST} to 128 visible characters")
    tasks = entry.tasks
    packed = _Packed(
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
        bytes.fromhex(signature),
        invitation.secret,
    )
    body = bytes([VERSION]) + msgspec.msgpack.encode(packed)
    word = PREFIX + base64.b32encode(_checksum(body) + body).decode().rstrip("=")
    if len(word) > LONGEST:
        raise ValueError(f"an invitation of {len(word)} characters, of at most {LONGEST}")
    return word


def read_invitation(word: str, now: float) -> Invitation:
    """The invitation in `word`, if its entry holds at the time `now` (seconds since 1970). Raises `BadEntry`, and
    nothing else."""
    if len(word) > LONGEST:
        raise BadEntry(f"too long: {len(word):,} characters, of at most {LONGEST:,}")
    if not _WORD.fullmatch(word):
        raise BadEntry(f"not an invitation: {PREFIX} and then letters A to Z and digits 2 to 7, in one piece")
    try:
        text = word.removeprefix(PREFIX)
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raise BadEntry("cut or changed: copy the whole line") from None
    checksum, body = data[:CHECKSUM], data[CHECKSUM:]
    if not body or checksum != _checksum(body):
        raise BadEntry("cut or changed: copy the whole line")
    if body[0] != VERSION:
        raise BadEntry(f"unknown version {body[0]}: this shoal reads version {VERSION}")
    try:
        packed = _decoder.decode(body[1:])
    except UNDECODABLE as error:
        raise BadEntry(f"malformed: {printable(str(error), 120)}") from None
    invitation = Invitation(open_entry(_as_json(packed), now), packed.secret)
    if written(invitation) != word:
        raise BadEntry("malformed: an invitation is written in one way only")
    return invitation


def _as_json(packed: _Packed) -> bytes:
    """The signed entry as directories have it."""
    entry: dict[str, Any] = {
        "version": ENTRY_VERSION,
        **{name: getattr(packed, name) for name in ("name", "swarm", "about", "relays", "judges", "rules")},
        "tasks": dict(zip(("suite", "only", "examples", "answer"), packed.tasks, strict=True))
        if packed.tasks
        else None,
        "key": packed.key.hex(),
        "signed": packed.signed,
        "expires": packed.expires,
    }
    if packed.certificate:
        entry["certificate"] = packed.certificate.hex()
    try:
        return msgspec.json.encode({"entry": entry, "signature": packed.signature.hex()})
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError) as error:
        raise BadEntry(f"malformed: {printable(str(error), 120)}") from None


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECKSUM, person=b"shoal invitation").digest()
