"""Signed messages: an envelope with the bytes of a message and the signature of their sender.

    data = sign_message(b"shoal offer v1\\0", message, identity)
    envelope = ENVELOPES.decode(data)                  # envelope.statement: exactly the bytes that were signed
    verify(key, envelope.signature, b"shoal offer v1\\0" + envelope.statement)

The message travels as bytes within the envelope, so that nobody has to encode it again to verify it. The domain in
front keeps a signature for one purpose from being used for another.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from shoal.identity.keys import Identity, verify
from shoal.untrusted import UNDECODABLE

ENCODER = msgspec.msgpack.Encoder()
OLD, AHEAD = 900.0, 60.0  # seconds that a message may be behind and ahead of the reader's clock: clocks differ

Key = Annotated[bytes, Meta(min_length=32, max_length=32)]
Seconds = Annotated[float, Meta(ge=0, le=2**53)]
"""Seconds since 1970 by the clock of the sender."""
SwarmName = Annotated[str, Meta(min_length=1, max_length=64)]


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The bytes of a message exactly as they were signed, and the signature. No version ever changes this."""

    statement: bytes
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]


ENVELOPES = msgspec.msgpack.Decoder(Envelope)


class SignedMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all small signed messages begin with."""

    schema_version: int
    swarm: SwarmName
    key: Key
    time: Seconds

    @property
    def id(self) -> str:
        """The sender's public key in hex."""
        return self.key.hex()


M = TypeVar("M", bound=SignedMessage)


def sign_message(domain: bytes, message: msgspec.Struct, identity: Identity) -> bytes:
    """The bytes of `message` in an envelope. `domain`: what is signed in front of it."""
    body = ENCODER.encode(message)
    return ENCODER.encode(Envelope(body, identity.sign(domain + body)))


def read_message(
    data: bytes, decoder: msgspec.msgpack.Decoder[M], swarm: str, version: int
) -> tuple[M, Envelope] | None:
    """The message in `data` if it is of this swarm and version, otherwise None. Its signature is not checked."""
    try:
        envelope = ENVELOPES.decode(data)
        message = decoder.decode(envelope.statement)
    except UNDECODABLE:
        return None
    return (message, envelope) if message.schema_version == version and message.swarm == swarm else None


def is_fresh(message: SignedMessage, now: float) -> bool:
    """Whether it was signed lately. Anybody can send again what was signed long ago."""
    return now - OLD <= message.time <= now + AHEAD


def is_signed(domain: bytes, message: SignedMessage, envelope: Envelope) -> bool:
    """Whether the key in `message` signed the bytes in `envelope`, with `domain` in front."""
    return verify(message.key, envelope.signature, domain + envelope.statement)
