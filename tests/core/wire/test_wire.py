"""The wire: what a stranger's bytes may be, and that nothing else comes of them.

python tests/test_wire.py golden    # writes tests/golden anew, for a new version of the format only
python tests/test_wire.py speed     # envelopes per second
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from shoal.identity.keys import Identity
from shoal.rollout import Completion, FinishReason, Part, QuestionId, Rollout, hash_of
from shoal.wire.rollouts import (
    DOMAIN,
    MAX_BYTES,
    Envelope,
    Malformed,
    NewerVersion,
    Statement,
    check_signature,
    open_envelope,
    seal,
)
from shoal.wire.signed import ENCODER, sign_message

GOLDEN = Path(__file__).parent / "golden"
ADA = Identity(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
NOW = 1_800_000_000.25
CONTEXT = bytes(range(100, 132))
SAMPLING = {"temperature": 0.7, "top_p": 0.95, "max_completion_length": 256}
"""What earlier programs said of their decoding."""
ASKED = "State the final answer to the following arithmetic problem: 5 + 4 ="
"""What the tasks of `pond` draw for this key in the swarm "reef", round 2, slot 1."""
PLAIN = Rollout(
    QuestionId("chain_sum", "0.1.25+1", "b2881ebf71418fa90aafdbe1c17845b9", seed=2978707163479355104, index=0),
    "7cf926ad1be51cc6531b9f9e8989a4ab",
    (Completion.of("9"), Completion.of("8", "length")),
    ADA.name,
    round=2,
    slot=1,
)
FULL = msgspec.structs.replace(
    PLAIN,
    completions=(
        Completion((Part("Four — 四 🐟"),), FinishReason.stop, None, (-0.25, 0.0, -12.5)),
        Completion((Part("see: "), Part("", "image/png", b"\x89PNG\x00")), FinishReason.length),
        Completion.of(""),
    ),
    round=2**40,
)
TURNS = msgspec.structs.replace(
    PLAIN,
    completions=(
        Completion((Part("48"), Part("52")), observations=("higher", "right")),
        Completion((Part("48"), Part("50"), Part("")), FinishReason.length, observations=("higher", "higher")),
        Completion.of("52"),
    ),
    round=3,
)
"""Two conversations of several turns, and one of a single turn."""


def stated(statement: Statement) -> bytes:
    """The envelope of a statement, which may say what this program never sends."""
    return sign_message(DOMAIN, statement, ADA)


def plain_dict() -> dict[str, Any]:
    """The statement of `PLAIN` as plain data."""
    statement: dict[str, Any] = msgspec.msgpack.decode(open_envelope(seal(PLAIN, ADA, "reef", NOW))[1].statement)
    return statement


def signed(body: bytes, context: bytes = b"") -> bytes:
    return msgspec.msgpack.encode([body, ADA.sign(DOMAIN + context + body)])


def packed(value: Any) -> bytes:
    """`value` as a statement, signed."""
    return signed(msgspec.msgpack.encode(value))


def clumsy(value: Any) -> bytes:
    """MessagePack in the longest forms that there are: allowed, though no encoder makes them all."""
    match value:
        case dict():
            items = b"".join(clumsy(key) + clumsy(value[key]) for key in reversed(value))
            return b"\xdf" + struct.pack(">I", len(value)) + items
        case list():
            return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(clumsy, value))
        case str():
            return b"\xdb" + struct.pack(">I", len(value.encode())) + value.encode()
        case bytes():
            return b"\xc6" + struct.pack(">I", len(value)) + value
        case int():
            return b"\xd3" + struct.pack(">q", value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
    raise TypeError(value)


def future() -> bytes:
    return packed({"schema_version": 9, "swarm": ["another", "shape"], "rollout": {"tree": [1, 2]}, "who": ADA.public})


def unknown_fields() -> bytes:
    """What a later program of this version may add, where it may."""
    statement = plain_dict() | {"mood": {"happy": [1, 2.5, None]}, "sampling": {**SAMPLING, "min_p": 0.1}}
    statement["rollout"] |= {"seconds": 1.5}
    statement["rollout"]["question"] |= {"difficulty": 3}
    statement["rollout"]["completions"][0] |= {"tool": None}
    statement["rollout"]["completions"][0]["parts"][0] |= {"language": "en"}
    return packed(statement)


def full() -> bytes:
    """With all fields of this program and of earlier ones."""
    stated = Statement(1, "reef", ADA.public, NOW, FULL)
    earlier = {"model": "guppy", "tokenizer": "b1946ac9", "sampling": SAMPLING}
    return packed(msgspec.msgpack.decode(ENCODER.encode(stated)) | earlier | {"kind": "program"})


MAKERS: dict[str, Callable[[], bytes]] = {
    "plain": lambda: seal(PLAIN, ADA, "reef", NOW),
    "full": full,
    "private": lambda: seal(PLAIN, ADA, "reef", NOW, context=CONTEXT),
    "other-encoding": lambda: clumsy([(body := clumsy(plain_dict())), ADA.sign(DOMAIN + body)]),
    "unknown-fields": unknown_fields,
    "forged": lambda: seal(PLAIN, ADA, "reef", NOW).replace(b"\xa4text\xa19", b"\xa4text\xa17"),
    "turns": lambda: seal(TURNS, ADA, "reef", NOW),
    "version-9": future,
}


@pytest.mark.parametrize("name", MAKERS)
def test_golden_files_are_made_byte_for_byte(name: str) -> None:
    """Nodes of all programs of a version read each other: whoever changes these changes the schema's version."""
    assert MAKERS[name]() == (GOLDEN / f"{name}.bin").read_bytes()


def test_no_golden_file_is_left_out() -> None:
    assert {path.stem for path in GOLDEN.glob("*.bin")} == {*MAKERS, "quotes"}


@pytest.mark.parametrize("name", ["plain", "private", "other-encoding", "unknown-fields"])
def test_golden_files_of_the_plain_statement(name: str) -> None:
    statement, envelope = open_envelope((GOLDEN / f"{name}.bin").read_bytes())
    assert statement == Statement(1, "reef", ADA.public, NOW, PLAIN)
    assert check_signature(envelope, statement) == (name != "private")
    assert check_signature(envelope, statement, CONTEXT) == (name == "private")


def test_the_golden_file_with_all_fields() -> None:
    statement, envelope = open_envelope((GOLDEN / "full.bin").read_bytes())
    assert statement == Statement(1, "reef", ADA.public, NOW, FULL, "program", model=statement.model)
    assert check_signature(envelope, statement)


def test_conversations_carry_the_turns_of_the_policy_alone() -> None:
    data = (GOLDEN / "turns.bin").read_bytes()
    statement, envelope = open_envelope(data)
    assert check_signature(envelope, statement)
    assert (statement.schema_version, statement.rollout.schema_version) == (2, 2)
    assert [completion.answer for completion in statement.rollout.completions] == [("48", "52"), ("48", "50", ""), "52"]
    assert b"higher" not in data


def test_what_has_one_turn_stays_as_it_was() -> None:
    """Older programs read it: nothing in it is new."""
    alone = msgspec.structs.replace(TURNS, completions=TURNS.completions[2:])
    assert open_envelope(seal(alone, ADA, "reef", NOW))[0].schema_version == 1
    assert Rollout.decode(alone.encode()).schema_version == 1


def test_a_question_that_quotes_rollouts_is_of_a_version_that_is_not_read() -> None:
    """Earlier programs sent version 3."""
    with pytest.raises(NewerVersion, match="version 3"):
        open_envelope((GOLDEN / "quotes.bin").read_bytes())


@pytest.mark.parametrize("field", ["token_ids", "observations"])
def test_what_only_a_receiver_knows_is_never_taken_from_the_wire(field: str) -> None:
    statement = plain_dict()
    statement["rollout"]["completions"][0] |= {field: [1] if field == "token_ids" else ["higher"]}
    with pytest.raises(Malformed, match="never shared"):
        open_envelope(packed(statement))


def test_the_forged_golden_file() -> None:
    statement, envelope = open_envelope((GOLDEN / "forged.bin").read_bytes())
    assert statement.rollout.completions[0].text == "7"
    assert not check_signature(envelope, statement)


def test_a_later_version_is_known_as_one() -> None:
    with pytest.raises(NewerVersion) as caught:
        open_envelope((GOLDEN / "version-9.bin").read_bytes())
    assert caught.value.version == 9
    for statement in (plain_dict() | {"schema_version": 2**64 - 1}, {"schema_version": 7}):
        with pytest.raises(NewerVersion):
            open_envelope(packed(statement))


def test_the_page_on_the_format_shows_how_the_golden_file_begins() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "wire-format.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    ((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)", page, re.MULTILINE)
    head = bytes.fromhex(" ".join(shown))
    assert len(head) > 20
    assert (GOLDEN / "plain.bin").read_bytes().startswith(head)
    for said in (ADA.id, ADA.name, ASKED, str(PLAIN.question.seed), PLAIN.question_hash):
        assert said in page


def test_seeds_and_hashes_are_made_as_the_page_says() -> None:
    """As somebody else would in another language, with JSON and BLAKE2b alone."""

    def hashed(value: Any) -> str:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    assert PLAIN.question_hash == hashed(ASKED)
    assert PLAIN.question.seed == int(hashed(["reef", ADA.id, PLAIN.round, PLAIN.slot, "chain_sum"])[:16], 16) >> 1
    for value in ('\0\x1f\n"\\/\x7f\u2028é🐟', [1, -5, 2**63], {"b": 1, "a": [None, True, 0.5]}):
        assert hash_of(value) == hashed(value)


completions = st.builds(
    Completion,
    parts=st.lists(st.builds(Part, st.text(), st.text(), st.binary()), max_size=3).map(tuple),
    finish_reason=st.sampled_from(FinishReason),
    logprobs=st.none() | st.lists(st.floats(-1e9, 0), max_size=4).map(tuple),
)
rollouts = st.builds(
    Rollout,
    question=st.builds(QuestionId, st.text(), st.text(), st.text(), st.integers(0, 2**63 - 1), st.integers(0, 1000)),
    question_hash=st.text(),
    completions=st.lists(completions, max_size=3).map(tuple),
    node=st.text(),
    round=st.integers(0, 2**53),
    slot=st.integers(0, 64),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "display_name": st.none() | st.text(max_size=256),
        "kind": st.sampled_from(["model", "human", "program"]),
    },
)


@given(rollouts, st.text(min_size=1, max_size=64), st.floats(0, 2**53), options)
def test_whatever_is_signed_comes_back(sent: Rollout, swarm: str, now: float, fields: dict[str, Any]) -> None:
    statement, envelope = open_envelope(stated(given := Statement(1, swarm, ADA.public, now, sent, **fields)))
    assert statement == given
    assert check_signature(envelope, statement)
    assert not check_signature(envelope, statement, CONTEXT)


def test_what_stays_at_home() -> None:
    own = Completion((Part("4"),), FinishReason.stop, (52, 1), (1e-9, -1.0))
    sent = msgspec.structs.replace(PLAIN, completions=(own,))
    data = seal(sent, ADA, "reef", NOW)
    statement, _ = open_envelope(data)
    assert b"token_ids" not in data
    assert b"logprobs" not in data
    assert statement.rollout.completions == (Completion.of("4"),)
    assert own.token_ids == (52, 1)
    assert own.logprobs == (1e-9, -1.0)


def test_what_cannot_be_sent() -> None:
    for text in ("x" * MAX_BYTES, "\ud800"):
        with pytest.raises(ValueError, match=r"can be sent|surrogates"):
            seal(msgspec.structs.replace(PLAIN, completions=(Completion.of(text),)), ADA, "reef", NOW)


def opens(data: bytes) -> tuple[Statement, Envelope] | None:
    """What `open_envelope` gives, or None for the two refusals that it may raise."""
    try:
        return open_envelope(data)
    except (Malformed, NewerVersion):
        return None


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9) | st.integers(0, 9), inner),
    max_leaves=12,
)


@given(st.binary() | plain.map(msgspec.msgpack.encode))
def test_junk_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        open_envelope(data)


@given(st.binary() | plain.map(msgspec.msgpack.encode))
def test_signed_junk_is_refused(body: bytes) -> None:
    assert opens(signed(body)) is None


PATHS = [
    *((name,) for name in plain_dict()),
    *(("rollout", name) for name in plain_dict()["rollout"]),
    *(("rollout", "question", name) for name in plain_dict()["rollout"]["question"]),
    ("rollout", "completions", 0),
    *(("rollout", "completions", 0, name) for name in ("parts", "finish_reason", "token_ids", "logprobs")),
    ("rollout", "completions", 0, "parts", 0),
    *(("rollout", "completions", 0, "parts", 0, name) for name in ("text", "mime", "data")),
    *((name,) for name in ("kind", "display_name")),
]


def with_value(path: tuple[Any, ...], value: Any) -> bytes:
    statement: Any = plain_dict()
    inner = statement
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return packed(statement)


@given(st.sampled_from(PATHS), plain)
def test_any_value_anywhere_is_a_statement_or_refused(path: tuple[Any, ...], value: Any) -> None:
    opened = opens(with_value(path, value))
    assert opened is None or check_signature(opened[1], opened[0])


@given(st.data())
def test_damaged_statements_are_statements_or_refused(data: st.DataObject) -> None:
    """Even where the damage is signed, so that it was done on purpose."""
    body = bytearray(open_envelope((GOLDEN / "full.bin").read_bytes())[1].statement)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(body)))
        body[start : start + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    opens(signed(bytes(body)))


WRONG: dict[str, tuple[tuple[Any, ...], Any]] = {
    "version 0": (("schema_version",), 0),
    "version below": (("schema_version",), -1),
    "version by text": (("schema_version",), "1"),
    "version by float": (("schema_version",), 1.0),
    "version by bool": (("schema_version",), True),
    "no swarm": (("swarm",), ""),
    "long swarm": (("swarm",), "s" * 65),
    "swarm in bytes": (("swarm",), b"reef"),
    "short key": (("key",), bytes(31)),
    "long key": (("key",), bytes(33)),
    "key as text": (("key",), "k" * 32),
    "time is NaN": (("time",), math.nan),
    "time is infinite": (("time",), math.inf),
    "time before 1970": (("time",), -1.0),
    "time as text": (("time",), "1800000000"),
    "no rollout": (("rollout",), None),
    "rollout in bytes": (("rollout",), b"\x80"),
    "rollout of another version": (("rollout", "schema_version"), 2),
    "seed by float": (("rollout", "question", "seed"), 7.0),
    "round by bool": (("rollout", "round"), True),
    "completions as map": (("rollout", "completions"), {"0": {}}),
    "too many completions": (("rollout", "completions"), [{"parts": []}] * 1025),
    "too many parts": (("rollout", "completions"), [{"parts": [{}] * 2049}] * 2),
    "other reason": (("rollout", "completions", 0, "finish_reason"), "eos"),
    "token_ids": (("rollout", "completions", 0, "token_ids"), [1, 2]),
    "empty token_ids": (("rollout", "completions", 0, "token_ids"), []),
    "logprob above 0": (("rollout", "completions", 0, "logprobs"), [-1.0, 1e-9]),
    "logprob is NaN": (("rollout", "completions", 0, "logprobs"), [-1.0, math.nan, -2.0]),
    "first logprob is NaN": (("rollout", "completions", 0, "logprobs"), [math.nan, -2.0]),
    "logprob is -inf": (("rollout", "completions", 0, "logprobs"), [-1.0, -math.inf]),
    "logprob is inf": (("rollout", "completions", 0, "logprobs"), [math.inf]),
    "logprob as text": (("rollout", "completions", 0, "logprobs"), ["-1"]),
    "long display name": (("display_name",), "m" * 257),
    "display name as number": (("display_name",), 3),
    "other kind": (("kind",), "fish"),
    "kind of None": (("kind",), None),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_malformed(name: str) -> None:
    with pytest.raises(Malformed):
        open_envelope(with_value(*WRONG[name]))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("time",), 1_800_000_000),
        (("rollout", "completions", 0, "logprobs"), [0, -1]),
        (("rollout", "completions", 0, "logprobs"), []),
        (("rollout", "completions", 0, "logprobs"), None),
        (("rollout", "completions", 0, "token_ids"), None),
        (("rollout", "completions"), []),
        (("rollout", "completions"), [{"parts": [{}] * 4}] * 1024),
        (("sampling",), None),
        (("model",), None),
    ],
)
def test_other_forms_of_right_values(path: tuple[Any, ...], value: Any) -> None:
    statement, envelope = open_envelope(with_value(path, value))
    assert check_signature(envelope, statement)


@pytest.mark.parametrize("name", ["schema_version", "swarm", "key", "time", "rollout"])
def test_nothing_may_be_missing(name: str) -> None:
    statement = plain_dict()
    del statement[name]
    with pytest.raises(Malformed, match=name):
        open_envelope(packed(statement))


@pytest.mark.parametrize(
    "envelope",
    [
        [b"", b""],
        [b"x"],
        [packed({}), bytes(63)],
        [packed({}), bytes(65)],
        {"statement": b"", "signature": bytes(64)},
        None,
    ],
)
def test_other_envelopes_are_malformed(envelope: Any) -> None:
    with pytest.raises(Malformed):
        open_envelope(msgspec.msgpack.encode(envelope))


def test_an_envelope_has_two_items_and_they_are_bytes() -> None:
    _, envelope = open_envelope(MAKERS["plain"]())
    for items in (
        [envelope.statement, envelope.signature, None],
        [envelope.statement.hex(), envelope.signature],
        [envelope.statement, "s" * 64],
        [envelope.signature, envelope.statement],
    ):
        with pytest.raises(Malformed):
            open_envelope(msgspec.msgpack.encode(items))


def test_cut_or_continued_messages_are_malformed() -> None:
    data = MAKERS["plain"]()
    body = open_envelope(data)[1].statement
    for length in range(len(data)):
        assert opens(data[:length]) is None
    for length in range(len(body)):
        assert opens(signed(body[:length])) is None
    for end in (b"\x00", b"\xc0", data, b"\xff" * 9):
        assert opens(data + end) is None
        assert opens(signed(body + end)) is None


def test_no_flipped_bit_verifies() -> None:
    data = MAKERS["plain"]()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        opened = opens(bytes(flipped))
        assert opened is None or not check_signature(opened[1], opened[0]), bit


def test_what_is_signed_is_bound_to_its_place() -> None:
    """No signature of something else is one of a rollout, and none of one swarm's secret is one of another's."""
    _, envelope = open_envelope(MAKERS["plain"]())
    bare = msgspec.msgpack.encode([envelope.statement, ADA.sign(envelope.statement)])
    statement, other = open_envelope(bare)
    assert not check_signature(other, statement)
    statement, private = open_envelope(MAKERS["private"]())
    assert not check_signature(private, statement, bytes(32))
    swapped = msgspec.structs.replace(statement, key=Identity.generate().public)
    assert not check_signature(private, swapped, CONTEXT)


def repeated(path: tuple[Any, ...]) -> bytes:
    """The plain statement with the first key of the map at `path` given twice, with the same value."""

    def build(value: Any, path: tuple[Any, ...] | None) -> bytes:
        if isinstance(value, dict):
            items = [clumsy(key) + build(item, after(path, key)) for key, item in value.items()]
            items += items[:1] if path == () else []
            return b"\xde" + struct.pack(">H", len(items)) + b"".join(items)
        if isinstance(value, list):
            items = [build(item, after(path, number)) for number, item in enumerate(value)]
            return b"\xdc" + struct.pack(">H", len(items)) + b"".join(items)
        return clumsy(value)

    def after(path: tuple[Any, ...] | None, step: Any) -> tuple[Any, ...] | None:
        return path[1:] if path and path[0] == step else None

    statement = plain_dict()
    statement["rollout"]["completions"][0]["finish_reason"] = "stop"  # in full, as a default that was written out
    return signed(build(statement, path))


@pytest.mark.parametrize(
    "path",
    [
        (),
        ("rollout",),
        ("rollout", "question"),
        ("rollout", "completions", 0),
        ("rollout", "completions", 1),
        ("rollout", "completions", 0, "parts", 0),
    ],
    ids=str,
)
def test_a_repeated_key_is_malformed(path: tuple[Any, ...]) -> None:
    assert opens(repeated(("nowhere",)))
    with pytest.raises(Malformed, match="repeats"):
        open_envelope(repeated(path))


def test_a_map_has_few_keys() -> None:
    extra = {f"x{number}": number for number in range(64 - len(plain_dict()))}
    open_envelope(packed(plain_dict() | extra))
    with pytest.raises(Malformed, match="65 keys"):
        open_envelope(packed(plain_dict() | extra | {"y": 0}))


def bombs() -> dict[str, bytes]:
    """Statements (not signed) that claim, nest or weigh too much."""
    start = b"\x86\xaeschema_version\x01"
    whole = msgspec.msgpack.encode(plain_dict())
    grown = bytes([whole[0] + 1]) + whole[1:] + b"\xa1x"  # a valid statement, and one unknown field
    nested = {
        f"{name} {depth}": grown + step * depth + b"\xc0"
        for depth in (900, 1100, 100_000, 900_000)
        for name, step in (("arrays", b"\x91"), ("maps", b"\x81\xa0"), ("keys", b"\x81"))
        if len(step) * depth < MAX_BYTES
    }
    claims = {
        f"claimed {kind[:1].hex()}": start + field + kind
        for kind in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff")
        for field in (b"\xa7rollout", b"\xa1x")
    }
    in_rollout = whole.replace(b"\xabcompletions\x92", b"\xabcompletions\xdd\x7f\xff\xff\xff")
    wide = in_rollout.replace(b"\xa5parts\x91", b"\xa5parts\xdd\x7f\xff\xff\xff")
    return {
        **nested,
        **claims,
        "claimed completions": in_rollout,
        "claimed parts": wide,
        "claims in claims": grown + (b"\xdd\x00\x0f\xff\xff" * 200_000),
        "many keys": b"\xdf\x00\x03\x00\x00" + b"\xa0\xc0" * 0x30000,
        "many numbers": grown + b"\xdd\x00\x0f\x00\x00" + bytes(0xF0000),
        "extension": grown + b"\xc9\x7f\xff\xff\xff\x05",
        "bad text as key": bytes([whole[0] + 1]) + whole[1:] + b"\xa2\xff\xfe\x00",
        "10 MB": msgspec.msgpack.encode(plain_dict() | {"x": "x" * 10_000_000}),
        "10 MB of arrays": grown + b"\x91" * 10_000_000,
    }


@pytest.mark.parametrize("name", bombs())
def test_bombs_are_refused(name: str) -> None:
    bomb = bombs()[name]
    started = time.process_time()
    for data in (signed(bomb), bomb, b"\x92" + bomb):
        if (opened := opens(data)) is not None:
            # Depth that Python bears (some 1000; from 3.12 on more), and weight within the bounds, are no harm.
            borne = (" 900", " 1100") if sys.version_info >= (3, 12) else " 900"
            assert name.endswith(borne) or name == "many numbers"
            assert opened[0].rollout == PLAIN
    assert time.process_time() - started < 10  # no figure: something that grows faster than the message would show


def test_strings_of_many_megabytes_are_refused_at_once() -> None:
    for data in (b"x" * 10_000_000, b"\x91" * 10_000_000, packed({"schema_version": 1, "swarm": "s" * 10_000_000})):
        with pytest.raises(Malformed, match="at most"):
            open_envelope(data)


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_claims_cost_no_memory() -> None:
    """What is claimed is gigabytes; the process may have 100 MB more than at its start."""
    script = (
        f"import resource, sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_wire as t\n"
        "bombs = [t.signed(bomb) for bomb in t.bombs().values()]\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)\n"
        "for bomb in bombs: t.opens(bomb)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_starts_without_torch() -> None:
    script = "import sys, shoal.wire.rollouts; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"


def write_golden() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name, make in MAKERS.items():
        (GOLDEN / f"{name}.bin").write_bytes(make())


def print_speed(seconds: float = 2.0) -> None:
    texts = [random.Random(number).randbytes(600).hex() for number in range(8)]
    sent = msgspec.structs.replace(PLAIN, completions=tuple(map(Completion.of, texts)))
    data = seal(sent, ADA, "reef", NOW)
    loose = msgspec.msgpack.decode(data)
    other = signed(clumsy(msgspec.msgpack.decode(loose[0])))
    actions: dict[str, Callable[[], Any]] = {
        "open and verify": lambda: check_signature(*reversed(open_envelope(data))),
        "open": lambda: open_envelope(data),
        "open, other encoding": lambda: open_envelope(other),
        "seal": lambda: seal(sent, ADA, "reef", NOW),
    }
    print(f"{len(data)} bytes, {len(texts)} completions, one core")
    for name, action in actions.items():
        count, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            assert action()
            count += 1
        print(f"{name:<22}{count / spent:>10,.0f} a second")


if __name__ == "__main__":
    {"golden": write_golden, "speed": print_speed}[sys.argv[1]]()
