"""What node and judge say to each other: one encoding, strict bounds, and signatures that cannot be moved."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.identity.keys import Identity
from shoal.rollout import Message, QuestionId
from shoal_host.judge.messages import (
    MAX_ANSWER,
    MAX_BYTES,
    Answer,
    Ask,
    Envelope,
    Malformed,
    Posed,
    Receipt,
    Statement,
    Verdict,
    encode,
    is_signed,
    is_worked,
    open_envelope,
    seal,
    work_of,
)

KINDS = Ask, Posed, Answer, Verdict, Receipt
NODE, JUDGE = Identity.generate(), Identity.generate()
hashes = st.binary(min_size=32, max_size=32)
counts = st.integers(0, 2**53 - 1)
times = st.floats(0, 2**53)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=256)
heads = {"judge": st.just(JUDGE.public), "key": st.just(NODE.public)}
ids = st.builds(QuestionId, names, names, names, st.integers(0, 2**63 - 1), st.integers(0, 1000))
prompts = st.lists(st.builds(Message, st.sampled_from(["user", "system"]), names), max_size=8).map(tuple)
nonces = st.binary(min_size=16, max_size=16)
asks = st.builds(Ask, **heads, nonce=nonces, time=times, round=counts, model=names, in_swarm=st.booleans(), work=counts)
statements = st.one_of(
    asks,
    st.builds(
        Posed,
        **heads,
        ask=hashes,
        number=counts,
        round=counts,
        task=names,
        prompt=prompts,
        asked=times,
        expires=times,
    ),
    st.builds(Answer, **heads, posed=hashes, text=names),
    st.builds(
        Verdict,
        **heads,
        answer=hashes,
        number=counts,
        round=counts,
        model=names,
        question=ids,
        score=st.floats(0, 1),
        time=times,
    ),
    st.builds(Receipt, **heads, answer=hashes, time=times),
)


def ask(**values: object) -> Ask:
    given = {"nonce": bytes(16), "time": 1.0, "round": 3, "model": "guppy", "in_swarm": True} | values
    return Ask(judge=JUDGE.public, key=NODE.public, **given)  # type: ignore[arg-type]


@given(statements)
def test_what_is_sealed_opens_as_it_was(statement: Statement) -> None:
    envelope = seal(statement, NODE)
    opened, same = open_envelope(encode(envelope), type(statement))
    assert opened == statement
    assert same == envelope
    assert same.hash == envelope.hash
    assert is_signed(same, NODE.public)
    assert not is_signed(same, JUDGE.public)


@given(statements, st.data())
def test_a_changed_bit_is_refused_or_unsigned(statement: Statement, data: st.DataObject) -> None:
    sealed = bytearray(encode(seal(statement, NODE)))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        _, envelope = open_envelope(bytes(sealed), *KINDS)
    except Malformed:
        return
    assert not is_signed(envelope, NODE.public)


@given(st.binary(max_size=300))
def test_whatever_the_bytes_malformed_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Malformed):
        open_envelope(data, *KINDS)


@given(st.sampled_from(["ask", "posed", "answer", "verdict", "receipt"]), st.binary(max_size=200))
def test_whatever_the_statement_malformed_and_nothing_else(kind: str, body: bytes) -> None:
    for statement in (body, b"\x94" + msgspec.msgpack.encode(kind) + body):
        with pytest.raises(Malformed):
            open_envelope(encode(Envelope(statement, bytes(64))), *KINDS)


def test_a_statement_is_of_one_kind_only() -> None:
    data = encode(seal(ask(), NODE))
    with pytest.raises(Malformed, match="kind"):
        open_envelope(data, Answer)
    with pytest.raises(Malformed):
        open_envelope(data.replace(b"\xa3ask", b"\xa3ack"), Ask)


def test_every_field_is_under_the_signature() -> None:
    first = seal(ask(), NODE)
    for name, value in {"round": 4, "model": "other", "in_swarm": False, "nonce": b"x" * 16, "time": 2.0}.items():
        other = seal(ask(**{name: value}), NODE)
        assert other.hash != first.hash
        assert not is_signed(msgspec.structs.replace(other, signature=first.signature), NODE.public)


def test_only_one_encoding_is_taken() -> None:
    envelope = seal(ask(), NODE)
    longer = envelope.statement[:1] + b"\xd9\x03" + envelope.statement[2:]  # the kind, in a longer form
    assert msgspec.msgpack.decode(longer) == msgspec.msgpack.decode(envelope.statement)
    with pytest.raises(Malformed, match="encoding"):
        open_envelope(encode(Envelope(longer, NODE.sign(longer))), Ask)
    with pytest.raises(Malformed):
        open_envelope(encode(envelope) + b"\0", Ask)


@pytest.mark.parametrize(
    "changed",
    [
        {"round": -1},
        {"round": 2**53},
        {"model": "x" * 257},
        {"nonce": bytes(15)},
        {"time": float("nan")},
        {"time": float("inf")},
        {"time": -1.0},
        {"in_swarm": 1},
        {"work": -1},
    ],
)
def test_bounds_of_an_ask(changed: dict[str, object]) -> None:
    body = msgspec.msgpack.encode(ask(**changed))
    with pytest.raises(Malformed):
        open_envelope(encode(Envelope(body, bytes(64))), Ask)


def test_the_longest_answer_fits_and_a_longer_one_does_not() -> None:
    def answer(text: str) -> bytes:
        return encode(seal(Answer(judge=JUDGE.public, key=NODE.public, posed=bytes(32), text=text), NODE))

    data = answer("\U0001f41f" * MAX_ANSWER)
    assert len(data) < MAX_BYTES
    open_envelope(data, Answer)
    with pytest.raises(Malformed):
        open_envelope(answer("x" * (MAX_ANSWER + 1)), Answer)
    with pytest.raises(Malformed, match="bytes"):
        open_envelope(bytes(MAX_BYTES + 1), Answer)


def test_work_is_for_one_judge_and_one_key() -> None:
    work = work_of(JUDGE.public, NODE.public, 10)
    assert is_worked(JUDGE.public, NODE.public, work, 10)
    assert not all(is_worked(bytes([n]) * 32, NODE.public, work, 10) for n in range(4))
    assert not all(is_worked(JUDGE.public, bytes([n]) * 32, work, 10) for n in range(4))
    assert work_of(JUDGE.public, NODE.public, 0) == 0
