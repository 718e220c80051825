"""What a node and a judge send each other (docs/guides/judge.md): five signed statements, and refusals.

    node  -> Ask      may I have a question after this round?   names the judge, the node, the round, a nonce
    judge -> Posed    here it is, with a deadline               names the Ask by its hash
    node  -> Answer   this is my one answer                     names the Posed by its hash
    judge -> Verdict  the score, and which question it was      names the Answer by its hash
             Receipt  the answer is stored, not yet scored      names the Answer by its hash

Each statement names the hash of the one before, so that a signature under the last one covers all: a verdict proves to
anybody that this judge gave this score to this node's answer. Only the encoding of this program is accepted, so equal
statements are equal bytes, and a hash names a statement.
"""

import hashlib
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from shoal.identity.keys import Identity, verify
from shoal.rollout import Message, QuestionId
from shoal.untrusted import UNDECODABLE

DOMAIN: Final = b"shoal judge v2\0"
"""Signed in front of a statement, so that a signature for another purpose is not valid for it."""
MAX_BYTES = 1 << 17
"""Bytes of an envelope: the longest answer, in characters of four bytes, takes half of that."""
MAX_ANSWER = 16_384
"""Characters of an answer."""
MAX_PROMPT = 66
"""Messages of a prompt."""

Key = Annotated[bytes, Meta(min_length=32, max_length=32)]
Hash = Annotated[bytes, Meta(min_length=32, max_length=32)]
Count = Annotated[int, Meta(ge=0, lt=2**53)]
Name = Annotated[str, Meta(max_length=256)]
Time = Annotated[float, Meta(ge=0, le=2**53)]


class Malformed(ValueError):  # noqa: N818 (a stranger sent it, it is not a fault)
    """The bytes are not a statement of an expected kind. The message says why."""


class Statement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag=str.lower):
    """The fields of all statements, behind their kind: `ask`, `posed`, ..."""

    judge: Key
    """The judge that it is for, or from: it is worth nothing to another."""
    key: Key
    """The node's key."""


class Ask(Statement, frozen=True, kw_only=True):
    """A node asks for a question after a round."""

    nonce: Annotated[bytes, Meta(min_length=16, max_length=16)]
    time: Time
    """By the node's clock."""
    round: Count
    model: Name
    """What answers, as the node declares it; "" if it declares nothing."""
    in_swarm: bool
    """Whether the node learns from peers' rollouts, as it declares."""
    work: Count = 0
    """The work of a new key (`work_of`)."""
    display_name: Name = ""
    """What its owner calls the node."""


class Posed(Statement, frozen=True, kw_only=True):
    """A question. Its id is secret until it is answered: whoever knows the seed can compute the right answer."""

    ask: Hash
    number: Count
    """Questions of this node before this one."""
    round: Count
    task: Name
    prompt: Annotated[tuple[Message, ...], Meta(max_length=MAX_PROMPT)]
    asked: Time
    expires: Time
    """The deadline of the answer, by the judge's clock."""


class Answer(Statement, frozen=True, kw_only=True):
    """The one answer."""

    posed: Hash
    text: Annotated[str, Meta(max_length=MAX_ANSWER)]


class Verdict(Statement, frozen=True, kw_only=True):
    """The score. With the question's id anybody can make the question again and score the answer."""

    answer: Hash
    number: Count
    round: Count
    model: Name
    question: QuestionId
    score: Annotated[float, Meta(ge=0, le=1)]
    time: Time


class Receipt(Statement, frozen=True, kw_only=True):
    """The answer is on disk, in time. Sent again, it gets its verdict once there is one."""

    answer: Hash
    time: Time


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no statement. It is not signed: whoever can forge it can also cut the connection."""

    reason: str
    detail: str
    time: float
    """The judge's clock."""
    retry_after: float | None = None
    """Seconds after which the same request may pass; None: never."""
    work: int = 0
    """Bits of work that a new key must show."""


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A statement as it was signed."""

    statement: bytes
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]

    @property
    def hash(self) -> bytes:
        """32 bytes that identify the statement, whoever signed it."""
        return hashlib.blake2b(DOMAIN + self.statement, digest_size=32).digest()


S = TypeVar("S", bound=Statement)
_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(Envelope)
_statements = msgspec.msgpack.Decoder(Ask | Posed | Answer | Verdict | Receipt)


def seal(statement: Statement, identity: Identity) -> Envelope:
    """`statement`, signed. Raises `UnicodeEncodeError` for lone surrogates."""
    body = _encoder.encode(statement)
    return Envelope(body, identity.sign(DOMAIN + body))


def encode(message: Envelope | Refusal) -> bytes:
    return _encoder.encode(message)


def open_envelope(data: bytes, *kinds: type[S]) -> tuple[S, Envelope]:
    """The statement in `data`, one of `kinds`, and its envelope. The signature is not checked. Raises `Malformed` and
    nothing else, whatever the bytes."""
    if len(data) > MAX_BYTES:
        raise Malformed(f"{len(data)} bytes, of at most {MAX_BYTES}")
    try:
        envelope = _envelopes.decode(data)
        statement = _statements.decode(envelope.statement)
        if not isinstance(statement, kinds):
            raise Malformed(f"a message of the kind {type(statement).__name__}")
        if _encoder.encode(statement) != envelope.statement or len(data) != len(_encoder.encode(envelope)):
            raise Malformed("another encoding than the one there is")
    except UNDECODABLE as error:
        raise Malformed(str(error)) from None
    return statement, envelope


def is_signed(envelope: Envelope, key: bytes) -> bool:
    """Whether `key` signed it: the node's for an Ask and an Answer, the judge's for the others."""
    return verify(key, envelope.signature, DOMAIN + envelope.statement)


def work_of(judge: bytes, key: bytes, bits: int) -> int:
    """The proof of work for a new key at one judge: a number that takes about 2**bits hashes to find, once."""
    number = 0
    while not is_worked(judge, key, number, bits):
        number += 1
    return number


def is_worked(judge: bytes, key: bytes, work: int, bits: int) -> bool:
    digest = hashlib.blake2b(judge + key + work.to_bytes(8, "big"), digest_size=8, person=b"shoal judge work").digest()
    return int.from_bytes(digest, "big") >> (64 - bits) == 0
