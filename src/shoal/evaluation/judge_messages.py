"""What a node and a judge say to each other: five signed statements, and refusals. docs/judge.md has them as tables.

    node  -> Ask      may I have a question after this round?      names the judge, the node, the round, a nonce
    judge -> Posed    here it is, until then                       names the Ask by its hash
    node  -> Answer   this is my one answer                        names the Posed by its hash
    judge -> Verdict  the score, and which question it was         names the Answer by its hash
             Receipt  the answer is kept, its score is to come     names the Answer by its hash

Each statement names the hash of the one before, so that a signature under the last covers all: node, judge, round,
model, nonce, question, answer. A verdict proves to anybody that this judge gave this score to this node's answer, and
neither can make the other's half.

Only the one encoding that this program makes is taken: an array in the order of the fields, in MessagePack's shortest
forms, floats in 64 bits. So equal statements are equal bytes, and a hash names a statement.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from shoal.identity.keys import Identity, verify
from shoal.rollout import Message, QuestionId

VERSION = 1
MAX_BYTES = 1 << 17
"""Of an envelope: an answer at its longest, in letters of four bytes, has half of that."""
MAX_ANSWER = 16_384
"""Characters of an answer."""
MAX_PROMPT = 8
"""Messages of a prompt."""

Key = Annotated[bytes, Meta(min_length=32, max_length=32)]
Hash = Annotated[bytes, Meta(min_length=32, max_length=32)]
Count = Annotated[int, Meta(ge=0, lt=2**53)]
Name = Annotated[str, Meta(max_length=256)]
Time = Annotated[float, Meta(ge=0, le=2**53)]


class Malformed(ValueError):  # noqa: N818 (it is what a stranger sent, not a fault)
    """The bytes are no statement of the kind that was expected. The message says why."""


class Statement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What all statements have."""

    version: Annotated[int, Meta(ge=VERSION, le=VERSION)] = VERSION
    judge: Key
    """Whom it is for: a statement for one judge is none for another."""
    key: Key
    """The node's key."""


class Ask(Statement, frozen=True, kw_only=True):
    """A node asks for a question after a round."""

    nonce: Annotated[bytes, Meta(min_length=16, max_length=16)]
    time: Time
    """By the judge's clock, as far as the node knows it."""
    round: Count
    model: Name
    """What answers, as the node declares it. "" where it is nobody's business."""
    in_swarm: bool
    """Whether the node learns from others' rollouts, as it declares itself."""
    work: Count = 0
    """What it has done to be known (`work_of`)."""


class Posed(Statement, frozen=True, kw_only=True):
    """A question. Its id is not told before it is answered: who knows the seed can make the right answer."""

    ask: Hash
    number: Count
    """How many questions this node had before."""
    round: Count
    task: Name
    prompt: Annotated[tuple[Message, ...], Meta(max_length=MAX_PROMPT)]
    asked: Time
    expires: Time
    """The answer must have come by then, by the judge's clock."""


class Answer(Statement, frozen=True, kw_only=True):
    """The one answer."""

    posed: Hash
    text: Annotated[str, Meta(max_length=MAX_ANSWER)]


class Verdict(Statement, frozen=True, kw_only=True):
    """The score. With the question's id anybody can make it again and score the answer himself."""

    answer: Hash
    number: Count
    round: Count
    model: Name
    question: QuestionId
    score: Annotated[float, Meta(ge=0, le=1)]
    time: Time


class Receipt(Statement, frozen=True, kw_only=True):
    """The answer is on disk, in time. Sent again, it is answered by its verdict, when there is one."""

    answer: Hash
    time: Time


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no statement. It is not signed: who can forge it can as well cut the line."""

    reason: str
    detail: str
    time: float
    """The judge's clock."""
    retry_after: float | None = None
    """Seconds after which the same may pass; None: it never will."""


class Card(msgspec.Struct, frozen=True):
    """What a judge says of itself to whoever looks (`GET /`, as JSON)."""

    judge: str
    """Its key, in hex."""
    name: str
    version: int
    time: float
    tasks: list[str]
    held_out: float
    limit: float
    """Seconds for an answer."""
    interval: float
    """Seconds between questions, in the long run."""
    work: int
    """Bits of work that a new key must show."""


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A statement as it was signed, with its kind."""

    kind: Annotated[str, Meta(max_length=16)]
    statement: bytes
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]

    @property
    def hash(self) -> bytes:
        """32 bytes that name the statement, whoever signed it."""
        return hashlib.blake2b(_domain(self.kind) + self.statement, digest_size=32).digest()


S = TypeVar("S", bound=Statement)
KINDS: dict[str, type[Statement]] = {kind.__name__.lower(): kind for kind in (Ask, Posed, Answer, Verdict, Receipt)}
_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(Envelope)
_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {k: msgspec.msgpack.Decoder(t) for k, t in KINDS.items()}
_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def seal(statement: Statement, identity: Identity) -> Envelope:
    """`statement`, signed. Raises `UnicodeEncodeError` for text that is no Unicode."""
    kind = type(statement).__name__.lower()
    body = _encoder.encode(statement)
    return Envelope(kind, body, identity.sign(_domain(kind) + body))


def encode(message: Envelope | Refusal) -> bytes:
    return _encoder.encode(message)


def open_envelope(data: bytes, *kinds: type[S]) -> tuple[S, Envelope]:
    """The statement in `data`, one of `kinds`, and its envelope. The signature is not checked. Raises `Malformed` and
    nothing else, whatever the bytes."""
    if len(data) > MAX_BYTES:
        raise Malformed(f"{len(data)} bytes, of at most {MAX_BYTES}")
    try:
        envelope = _envelopes.decode(data)
        if KINDS.get(envelope.kind) not in kinds:
            raise Malformed(f"a message of the kind {envelope.kind!r}")
        statement: S = _decoders[envelope.kind].decode(envelope.statement)
        if _encoder.encode(statement) != envelope.statement or len(data) != len(_encoder.encode(envelope)):
            raise Malformed("another encoding than the one there is")
    except _UNDECODABLE as error:
        raise Malformed(str(error)) from None
    return statement, envelope


def is_signed(envelope: Envelope, key: bytes) -> bool:
    """Whether `key` has signed it: the node's for an Ask and an Answer, the judge's for the others."""
    return verify(key, envelope.signature, _domain(envelope.kind) + envelope.statement)


def work_of(judge: bytes, key: bytes, bits: int) -> int:
    """The number that makes a new key worth a judge's while: some 2**bits hashes. It is for one judge and one key, and
    is found once."""
    number = 0
    while not is_worked(judge, key, number, bits):
        number += 1
    return number


def is_worked(judge: bytes, key: bytes, work: int, bits: int) -> bool:
    digest = hashlib.blake2b(judge + key + work.to_bytes(8, "big"), digest_size=8, person=b"shoal judge work").digest()
    return int.from_bytes(digest, "big") >> (64 - bits) == 0


def _domain(kind: str) -> bytes:
    """Is signed in front of a statement, so that no signature made for another purpose is one for it."""
    return b"shoal judge " + kind.encode() + b" v1\0"
