"""The message that carries a rollout: signed by its maker.
docs/reference/wire-format.md describes it for other languages.

    data = seal(rollout, identity, "lagoon", time.time())
    statement, envelope = open_envelope(data)      # for any bytes: a result, Malformed or NewerVersion
    check_signature(envelope, statement)           # whether statement.key signed it

The key stands inside, so opening comes before verifying. Opening costs time and memory in proportion to the message,
whatever sizes and depths the message claims.
"""

import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shoal.identity.keys import Identity
from shoal.rollout import SCHEMA_VERSION, Rollout
from shoal.untrusted import UNDECODABLE
from shoal.wire.signed import ENCODER, ENVELOPES, Envelope, SignedMessage, is_signed, sign_message

DOMAIN = b"shoal rollout v1\0"
MAX_BYTES = 1 << 20  # of an envelope; nodes accept less (`AdmissionLimits`), and relays carry less
MAX_FIELDS = 64  # keys of a map, unknown ones included
MAX_COMPLETIONS, MAX_PARTS = 1024, 4096  # of a rollout, and of all its completions together
VERSIONS = range(1, SCHEMA_VERSION + 1)  # of a statement with its rollout: several turns need 2

Kind = Literal["model", "human", "program"]


class Malformed(ValueError):  # noqa: N818 (it is what a stranger sent, not a fault)
    """The bytes are no envelope of this version. The message says why."""


class NewerVersion(Exception):  # noqa: N818
    """The statement is of a later version of the format, which this program cannot read."""

    def __init__(self, version: int) -> None:
        super().__init__(f"version {version} of the wire format; this program reads up to {SCHEMA_VERSION}")
        self.version = version


class Statement(SignedMessage, frozen=True):
    """What the maker of a rollout says and signs. No receiver needs the optional fields."""

    rollout: Rollout
    kind: Kind = "model"
    """What answered."""
    display_name: Annotated[str, Meta(max_length=256)] | None = None
    """What its owner calls the maker (`config.display_name`)."""
    model: Annotated[str, Meta(max_length=256)] | None = None
    """The public name of the model that answered, by its maker's word."""
    not_kept: bool = False
    """Whether its maker wants it in no archive."""


class _Head(msgspec.Struct):
    """What every version of a statement has."""

    schema_version: int


class _Key:
    """A key of a map that equals no other key, so that a dict keeps repeated keys."""

    def __init__(self, _: type, name: str) -> None:
        self.name = name


_heads = msgspec.msgpack.Decoder(_Head)
_statements = msgspec.msgpack.Decoder(Statement)
_maps = msgspec.msgpack.Decoder(dict[_Key, msgspec.Raw], dec_hook=_Key)
_lists = msgspec.msgpack.Decoder(list[msgspec.Raw])


def seal(rollout: Rollout, identity: Identity, swarm: str, now: float, *, context: bytes = b"", **said: Any) -> bytes:
    """The signed envelope of `rollout`. Its token ids, log-probabilities and observations stay here.

    `now`: seconds since 1970. `context`: what a private swarm signs with it and never sends (`Secret.context`). `said`:
    optional fields of the `Statement`. Raises `ValueError` for more than `MAX_BYTES`, and for text that is no Unicode.
    """
    rollout = rollout.public()
    statement = Statement(rollout.schema_version, swarm, identity.public, now, rollout, **said)
    data = sign_message(DOMAIN + context, statement, identity)
    if len(data) > MAX_BYTES:
        raise ValueError(f"a rollout of {len(data)} bytes; at most {MAX_BYTES} can be sent")
    return data


def open_envelope(data: bytes) -> tuple[Statement, Envelope]:
    """The statement in `data`, strictly typed and within bounds, and its envelope. Its signature is not checked.

    Raises `NewerVersion` for a statement of a later version, `Malformed` for any other bytes, and nothing else.
    """
    if len(data) > MAX_BYTES:
        raise Malformed(f"{len(data)} bytes, of at most {MAX_BYTES}")
    try:
        envelope = ENVELOPES.decode(data)
        # This walks over all of the statement and keeps nothing: it finds sizes that the statement claims and does not
        # have, before anything is allocated for them.
        version = _heads.decode(envelope.statement).schema_version
        if version > SCHEMA_VERSION:
            raise NewerVersion(version)
        statement = _statements.decode(envelope.statement)
        _check(statement)
        # A statement that encodes to the same bytes repeats no key. Others are allowed, and need a closer look.
        if ENCODER.encode(statement) != envelope.statement:
            _check_keys(envelope.statement)
    except UNDECODABLE as error:
        raise Malformed(str(error)) from None
    return statement, envelope


def check_signature(envelope: Envelope, statement: Statement, context: bytes = b"") -> bool:
    """Whether the key in `statement` signed the bytes in `envelope`, together with `context`."""
    return is_signed(DOMAIN + context, statement, envelope)


def _check(statement: Statement) -> None:
    """Checks what the types do not say."""
    rollout = statement.rollout
    if statement.schema_version not in VERSIONS or rollout.schema_version != statement.schema_version:
        raise Malformed(f"versions {statement.schema_version} and {rollout.schema_version}")
    parts = sum(len(completion.parts) for completion in rollout.completions)
    if len(rollout.completions) > MAX_COMPLETIONS or parts > MAX_PARTS:
        raise Malformed(f"{len(rollout.completions)} completions of {parts} parts")
    for completion in rollout.completions:
        if completion.token_ids is not None or completion.observations:
            raise Malformed("token_ids and observations are never shared")
        # A sum is NaN or -inf if a term is. It is faster than a loop.
        logprobs = completion.logprobs
        if logprobs and not (max(logprobs) <= 0 and sum(logprobs) > -math.inf):
            raise Malformed("log-probabilities must be finite and at most 0")


def _check_keys(data: bytes) -> None:
    """Raises `Malformed` if a map of a decoded statement repeats a key: decoders differ in which value they take."""
    statement = _fields(data)
    rollout = _fields(statement["rollout"])
    _fields(rollout["question"])
    for completion in _lists.decode(rollout["completions"]):
        for part in _lists.decode(_fields(completion)["parts"]):
            _fields(part)


def _fields(data: msgspec.Raw | bytes) -> dict[str, msgspec.Raw]:
    """The values of a decoded map by key. Raises `Malformed` if a key repeats or there are too many."""
    view = memoryview(data)
    first = view[0]
    size = first & 15 if first < 0x90 else int.from_bytes(view[1 : 3 if first == 0xDE else 5], "big")
    if size > MAX_FIELDS:
        raise Malformed(f"a map of {size} keys, of at most {MAX_FIELDS}")
    fields = {key.name: value for key, value in _maps.decode(data).items()}
    if len(fields) < size:
        raise Malformed("a key repeats in a map")
    return fields
