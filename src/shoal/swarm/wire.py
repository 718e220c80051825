"""What crosses the network: a signed rollout. docs/wire-format.md says it for other languages.

    data = seal(rollout, identity, "reef", time.time())
    statement, envelope = open_envelope(data)      # whatever the bytes: this, Malformed or NewerVersion
    check_signature(envelope, statement)           # whether statement.key has signed it

An envelope holds its statement as bytes, and these are what is signed: nobody has to encode anything again, in the same
order and form, to verify it. Opening comes before verifying, as the key stands inside; it costs time and memory in
proportion to the message, whatever sizes and depths the message claims.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shoal.identity.keys import Identity, verify
from shoal.rollout import SCHEMA_VERSION as ROLLOUT_VERSION
from shoal.rollout import Completion, Rollout

SCHEMA_VERSION = 1
"""Of the statement and all within it."""
DOMAIN = b"shoal rollout v1\0"
"""Is signed in front of a statement, so that no signature made for another purpose is one for a rollout."""
MAX_BYTES = 1 << 20
"""Of an envelope. Nodes take less by default (`admission.max_bytes`), and relays carry less."""
MAX_FIELDS = 64
"""Keys of a map, unknown ones included."""
MAX_COMPLETIONS, MAX_PARTS = 1024, 4096
"""Of a rollout, and of all its completions together. Nodes take fewer by default (`admission.max_generations`)."""
MAX_NAME = 256
"""Characters of `model` and `tokenizer`."""

Kind = Literal["model", "human", "program"]
Name = Annotated[str, Meta(max_length=MAX_NAME)]


class Malformed(ValueError):  # noqa: N818 (it is what a stranger sent, not a fault)
    """The bytes are no envelope of this version. The message says why."""


class NewerVersion(Exception):  # noqa: N818
    """The statement is of a later version of the format, which this program cannot read."""

    def __init__(self, version: int) -> None:
        super().__init__(f"version {version} of the wire format; this program reads up to {SCHEMA_VERSION}")
        self.version = version


class SamplingSettings(msgspec.Struct, frozen=True):
    """How the completions were sampled."""

    temperature: Annotated[float, Meta(ge=0, le=1e6)]
    top_p: Annotated[float, Meta(gt=0, le=1)]
    max_completion_length: Annotated[int, Meta(ge=1)]
    """In tokens of its maker."""


class Statement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What its maker says, and signs. The optional fields are for curiosity and statistics: none is ever needed."""

    schema_version: int
    swarm: Annotated[str, Meta(min_length=1, max_length=64)]
    key: Annotated[bytes, Meta(min_length=32, max_length=32)]
    """Ed25519 public key of the maker."""
    time: Annotated[float, Meta(ge=0, le=2**53)]
    """Seconds since 1970 by the maker's clock when it was sealed."""
    rollout: Rollout
    model: Name | None = None
    tokenizer: Name | None = None
    """A fingerprint."""
    sampling: SamplingSettings | None = None
    kind: Kind = "model"
    """What answered."""


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A statement's bytes exactly as they were signed, and the signature. No version ever changes this."""

    statement: bytes
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]


class _Head(msgspec.Struct):
    """What every version of a statement has."""

    schema_version: int


class _Key:
    """A key of a map that equals no other, so that a dict keeps those that repeat."""

    def __init__(self, _: type, name: str) -> None:
        self.name = name


NIL = b"\xc0"

_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(Envelope)
_heads = msgspec.msgpack.Decoder(_Head)
_statements = msgspec.msgpack.Decoder(Statement)
_maps = msgspec.msgpack.Decoder(dict[_Key, msgspec.Raw], dec_hook=_Key)
_lists = msgspec.msgpack.Decoder(list[msgspec.Raw])

_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def seal(
    rollout: Rollout,
    identity: Identity,
    swarm: str,
    now: float,
    *,
    context: bytes = b"",
    model: str | None = None,
    tokenizer: str | None = None,
    sampling: SamplingSettings | None = None,
    kind: Kind = "model",
) -> bytes:
    """The envelope of `rollout`, signed. Its `token_ids` stay here; its log-probabilities go along if it has any.

    `context` is what a private swarm signs along without sending it: empty or 32 bytes (`secret.Secret`). Names that
    are too long are cut. Raises `ValueError` for more than `MAX_BYTES`, and for text that is no Unicode.
    """
    statement = Statement(
        schema_version=SCHEMA_VERSION,
        swarm=swarm,
        key=identity.public,
        time=now,
        rollout=msgspec.structs.replace(rollout, completions=tuple(map(_shareable, rollout.completions))),
        model=model and model[:MAX_NAME],
        tokenizer=tokenizer and tokenizer[:MAX_NAME],
        sampling=sampling,
        kind=kind,
    )
    body = _encoder.encode(statement)
    data = _encoder.encode(Envelope(body, identity.sign(DOMAIN + context + body)))
    if len(data) > MAX_BYTES:
        raise ValueError(f"a rollout of {len(data)} bytes: {MAX_BYTES} are the most that can be sent")
    return data


def open_envelope(data: bytes) -> tuple[Statement, Envelope]:
    """The statement in `data`, strictly typed and within bounds, and its envelope. Its signature is not checked.

    Raises `NewerVersion` for a statement of a later version, `Malformed` for anything else that is none, and nothing
    else, whatever the bytes.
    """
    if len(data) > MAX_BYTES:
        raise Malformed(f"{len(data)} bytes, of at most {MAX_BYTES}")
    try:
        envelope = _envelopes.decode(data)
        # This walks over all of the statement and keeps nothing: sizes that it claims and has not are found here,
        # before anything is allocated for them.
        version = _heads.decode(envelope.statement).schema_version
        if version > SCHEMA_VERSION:
            raise NewerVersion(version)
        statement = _statements.decode(envelope.statement)
        _check(statement)
        # What comes back byte for byte repeats no key. Other encodings are as good, and cost a closer look.
        if _encoder.encode(statement) != envelope.statement:
            _check_keys(envelope.statement)
    except _UNDECODABLE as error:
        raise Malformed(str(error)) from None
    return statement, envelope


def check_signature(envelope: Envelope, statement: Statement, context: bytes = b"") -> bool:
    """Whether the key in `statement` has signed the bytes in `envelope`, along with `context`."""
    return verify(statement.key, envelope.signature, DOMAIN + context + envelope.statement)


def _shareable(completion: Completion) -> Completion:
    """`completion` as others may have it. Log-probabilities that rounding brought above 0 are 0."""
    logprobs = completion.logprobs
    if logprobs is not None:
        logprobs = tuple(min(0.0, value) for value in logprobs) if all(map(math.isfinite, logprobs)) else None
    return msgspec.structs.replace(completion, token_ids=None, logprobs=logprobs)


def _check(statement: Statement) -> None:
    """What the types do not say."""
    rollout = statement.rollout
    if statement.schema_version != SCHEMA_VERSION or rollout.schema_version != ROLLOUT_VERSION:
        raise Malformed(f"versions {statement.schema_version} and {rollout.schema_version}")
    parts = sum(len(completion.parts) for completion in rollout.completions)
    if len(rollout.completions) > MAX_COMPLETIONS or parts > MAX_PARTS:
        raise Malformed(f"{len(rollout.completions)} completions of {parts} parts")
    for completion in rollout.completions:
        if completion.token_ids is not None:
            raise Malformed("token_ids are never shared")
        # A sum is NaN or -inf if a term is, and does not take strangers' time as a loop does.
        logprobs = completion.logprobs
        if logprobs and not (max(logprobs) <= 0 and sum(logprobs) > -math.inf):
            raise Malformed("log-probabilities must be finite and at most 0")


def _check_keys(data: bytes) -> None:
    """Raises `Malformed` if a map of a statement that has been decoded repeats a key: decoders differ in which they
    take."""
    statement = _fields(data)
    if "sampling" in statement and bytes(statement["sampling"]) != NIL:
        _fields(statement["sampling"])
    rollout = _fields(statement["rollout"])
    _fields(rollout["question"])
    for completion in _lists.decode(rollout["completions"]):
        for part in _lists.decode(_fields(completion)["parts"]):
            _fields(part)


def _fields(data: msgspec.Raw | bytes) -> dict[str, msgspec.Raw]:
    """The values of a map that has been decoded before, by key; `Malformed` if a key repeats or there are too many."""
    view = memoryview(data)
    first = view[0]
    size = first & 15 if first < 0x90 else int.from_bytes(view[1 : 3 if first == 0xDE else 5], "big")
    if size > MAX_FIELDS:
        raise Malformed(f"a map of {size} keys, of at most {MAX_FIELDS}")
    fields = {key.name: value for key, value in _maps.decode(data).items()}
    if len(fields) < size:
        raise Malformed("a key repeats in a map")
    return fields
