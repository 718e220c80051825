"""What crosses the network: a rollout, who says it, and a signature over just those bytes.

    data = seal(rollout, identity, "reef", time.time())
    statement, envelope = open_envelope(data)          # Malformed or NewerVersion, and nothing else, is raised
    check_signature(envelope, statement)               # True

    envelope  = [statement: bytes, signature: 64 bytes]              MessagePack array
    statement = {schema_version, swarm, key, time, rollout, ...}     MessagePack map

The signature is over the statement's bytes as they stand, so that nobody ever has to encode something anew to check
it. docs/wire-format.md has it all.
"""

from __future__ import annotations

import hashlib
import math
from typing import Annotated, Literal

import msgspec

from shoal.rollout import SCHEMA_VERSION, Rollout
from shoal.swarm.identity import Identity, verify

PREFIX = b"shoal rollout v1\0"
"""Signed along, so that no signature made for another purpose passes for one of a rollout."""


class Malformed(ValueError):  # noqa: N818
    """Not a message of this format."""


class NewerVersion(Exception):  # noqa: N818 (it is a fact about a message, not a fault)
    """A message of a later version of the format."""

    def __init__(self, version: int) -> None:
        super().__init__(f"version {version} of the wire format; this is {SCHEMA_VERSION}")
        self.version = version


class SamplingSettings(msgspec.Struct, frozen=True):
    """How the completions were drawn."""

    temperature: float
    top_p: float
    max_completion_length: int


class Statement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is signed. The fields with defaults are optional, and never needed."""

    schema_version: int
    swarm: str
    key: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    """Ed25519 public key of the maker."""
    time: float
    """Seconds since 1970 by the maker's clock."""
    rollout: Rollout
    model: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    tokenizer: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    """A fingerprint of the maker's tokenizer: whose is the same may align `logprobs` with tokens."""
    sampling: SamplingSettings | None = None
    kind: Literal["model", "human", "program"] = "model"


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    statement: bytes
    signature: Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]


class _Version(msgspec.Struct):
    schema_version: int


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_envelope = msgspec.msgpack.Decoder(Envelope)
_statement = msgspec.msgpack.Decoder(Statement)
_version = msgspec.msgpack.Decoder(_Version)


def seal(
    rollout: Rollout,
    identity: Identity,
    swarm: str,
    now: float,
    *,
    model: str | None = None,
    tokenizer: str | None = None,
    sampling: SamplingSettings | None = None,
    kind: Literal["model", "human", "program"] = "model",
    context: bytes = b"",
) -> bytes:
    """The bytes that cross the network. `token_ids` stay at home; log-probabilities go along if `rollout` has them.
    `context`: what a private swarm signs along without sending it."""
    public = rollout.public(logprobs=True)
    statement = _encode(
        Statement(SCHEMA_VERSION, swarm, identity.public, now, public, model, tokenizer, sampling, kind)
    )
    return _encode(Envelope(statement, identity.sign(signed(statement, context))))


def open_envelope(data: bytes) -> tuple[Statement, Envelope]:
    """What a message says, whoever says it. Raises `Malformed` or `NewerVersion`."""
    try:
        envelope = _envelope.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        raise Malformed(str(error)) from None
    try:
        statement = _statement.decode(envelope.statement)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        _refuse_newer(envelope.statement)
        raise Malformed(str(error)) from None
    if statement.schema_version != SCHEMA_VERSION or statement.rollout.schema_version != SCHEMA_VERSION:
        _refuse_newer(envelope.statement)
        raise Malformed("no such version")
    if not math.isfinite(statement.time):
        raise Malformed("no such time")
    for completion in statement.rollout.completions:
        if completion.token_ids is not None:
            raise Malformed("token_ids are never shared")
        if not all(math.isfinite(logprob) and logprob <= 0 for logprob in completion.logprobs or ()):
            raise Malformed("no such log-probability")
    return statement, envelope


def check_signature(envelope: Envelope, statement: Statement, context: bytes = b"") -> bool:
    """Whether the holder of the statement's key, and of a private swarm's secret, signed it."""
    return verify(statement.key, envelope.signature, signed(envelope.statement, context))


def signed(statement: bytes, context: bytes) -> bytes:
    """What the signature is over."""
    return PREFIX + hashlib.blake2b(context, digest_size=32).digest() + statement


def _refuse_newer(statement: bytes) -> None:
    try:
        version = _version.decode(statement).schema_version
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError):
        return
    if version > SCHEMA_VERSION:
        raise NewerVersion(version)
