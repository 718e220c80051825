"""Rollouts on the wire, and the hashes and seeds by which strangers agree."""

from __future__ import annotations

import unicodedata
from typing import Any

import msgspec
import pytest
from fakes import question, rollout
from hypothesis import given
from hypothesis import strategies as st

from shoal.rollout import (
    Completion,
    FinishReason,
    Message,
    Part,
    Question,
    QuestionId,
    Rollout,
    Scored,
    canonical,
    hash_of,
    seed_of,
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
completions = st.builds(
    Completion,
    parts=st.lists(st.builds(Part, st.text(), st.text(), st.binary()), max_size=3).map(tuple),
    finish_reason=st.sampled_from(FinishReason),
)


@given(st.text())
def test_any_text_comes_back_unchanged(text: str) -> None:
    sent = rollout(answers=[text, text + "\0"])
    assert [completion.text for completion in Rollout.decode(sent.encode()).completions] == [text, text + "\0"]


@given(
    st.builds(
        Rollout,
        question=st.builds(
            QuestionId, st.text(), st.text(), st.text(), st.integers(0, 2**63 - 1), st.integers(0, 1000)
        ),
        question_hash=st.text(),
        completions=st.lists(completions, max_size=3).map(tuple),
        node=st.text(),
        round=st.integers(0, 2**40),
    )
)
def test_any_rollout_comes_back_unchanged(sent: Rollout) -> None:
    assert Rollout.decode(sent.encode()) == sent.public()


def test_the_bytes_stay_the_same() -> None:
    """Nodes of different versions of the program read each other: whoever changes this changes the schema's version."""
    identity = QuestionId("chain_sum", "1", "c0ffee", seed=7, index=0)
    sent = Rollout(identity, "ab", (Completion.of("4"), Completion.of("5", "length")), "ada", 3)
    assert sent.schema_version == 1
    assert sent.encode() == (
        b"\x87\xa8question\x85\xa4task\xa9chain_sum\xa7version\xa11\xa6config\xa6c0ffee\xa4seed\x07\xa5index\x00"
        b"\xadquestion_hash\xa2ab\xabcompletions\x92\x81\xa5parts\x91\x81\xa4text\xa14"
        b"\x82\xa5parts\x91\x81\xa4text\xa15\xadfinish_reason\xa6length\xa4node\xa3ada\xa5round\x03\xa4slot\x00"
        b"\xaeschema_version\x01"
    )


def test_tokens_never_leave_the_node() -> None:
    own = Rollout(question(1).id, "h", (Completion((Part("4"),), FinishReason.stop, (52, 1)),), "ada", 1)
    assert b"token_ids" not in own.encode()
    assert Rollout.decode(own.encode()).completions == (Completion.of("4"),)
    assert own.completions[0].token_ids == (52, 1)


def test_a_stranger_s_tokens_are_refused() -> None:
    """A learner takes `token_ids` for its own policy's: they could say another thing than the text."""
    message = as_dict(rollout())
    message["completions"][1]["token_ids"] = [5, 6, 7]
    with pytest.raises(msgspec.ValidationError, match="token_ids"):
        Rollout.decode(msgspec.msgpack.encode(message))


def as_dict(sent: Rollout) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.msgpack.decode(sent.encode())
    return decoded


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["question"], "chain_sum"),
        (["question", "seed"], 1.5),
        (["question", "seed"], "7"),
        (["question", "index"], None),
        (["question", "task"], 3),
        (["question_hash"], b"\x00"),
        (["completions"], "right"),
        (["completions"], [None]),
        (["completions", 0, "parts"], "right"),
        (["completions", 0, "parts", 0, "text"], 4),
        (["completions", 0, "parts", 0, "text"], b"\xff\xfe"),
        (["completions", 0, "finish_reason"], "eos"),
        (["node"], 3),
        (["round"], "3"),
        (["schema_version"], "one"),
    ],
)
def test_wrong_types_are_refused(path: list[str | int], value: object) -> None:
    message = as_dict(rollout())
    inner: Any = message
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    with pytest.raises(msgspec.MsgspecError):
        Rollout.decode(msgspec.msgpack.encode(message))


@pytest.mark.parametrize("name", ["question", "question_hash", "completions", "node", "round"])
def test_nothing_may_be_missing(name: str) -> None:
    message = as_dict(rollout())
    del message[name]
    with pytest.raises(msgspec.MsgspecError, match=name):
        Rollout.decode(msgspec.msgpack.encode(message))


def test_cut_or_continued_messages_are_refused() -> None:
    data = rollout().encode()
    for junk in [data[:length] for length in range(len(data))] + [data + b"\x00", b"\xff" * 40]:
        with pytest.raises(msgspec.MsgspecError):
            Rollout.decode(junk)


@given(st.binary() | plain.map(msgspec.msgpack.encode))
def test_junk_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        Rollout.decode(data)


def test_hashes_and_seeds_stay_the_same() -> None:
    """On every machine and in every version: questions and the split hang on them."""
    assert hash_of({"b": [1, 2.5, "é"], "a": None}) == "f8df62ed4c32a3a1138f3eab72524768"
    assert hash_of(("side", "2 + 2 =")) == "bbd22bc6ed0b89f0db645b0f3b480ec5"
    assert seed_of(0, "node-1", 3, "generate") == 2451353686781513268
    assert seed_of("a") == 8835385903531772951
    asked = Question(QuestionId("chain_sum", "1", "c0ffee", 7, 0), (Message("user", "2 + 2 ="),))
    assert asked.hash == "63fb9a053160c50ac963ad2291cbf789"


@given(plain)
def test_a_hash_has_128_bits_and_no_order_of_keys(value: object) -> None:
    assert len(hash_of(value)) == 32
    int(hash_of(value), 16)
    assert hash_of({"a": 1, "b": value}) == hash_of({"b": value, "a": 1}) != hash_of({"a": 2, "b": value})


@given(st.lists(st.integers(0, 2**63) | st.text(), max_size=4))
def test_seeds_are_in_range(parts: list[int | str]) -> None:
    assert 0 <= seed_of(*parts) < 2**63
    assert seed_of(*parts) == seed_of(*parts)


def test_seeds_of_different_parts_differ() -> None:
    assert len({seed_of("ab", "c"), seed_of("a", "bc"), seed_of("abc"), seed_of(1), seed_of("1"), seed_of()}) == 6
    assert len({seed_of(0, name, round) for name in "abcd" for round in range(500)}) == 2000


@given(st.text())
def test_canonical_texts(text: str) -> None:
    folded = canonical(text)
    assert canonical(folded) == folded == canonical(f" {text}\t\n")
    assert canonical(unicodedata.normalize("NFD", text)) == folded


def test_a_question_is_known_by_what_the_user_asks() -> None:
    def asking(*prompt: Message) -> Question:
        return Question(question(1).id, prompt)

    bare = asking(Message("user", "2  +\n2 ="))
    assert bare.text == "2  +\n2 ="
    assert bare.hash == asking(Message("system", "be brief"), Message("user", " 2 + 2 = ")).hash
    assert bare.hash != asking(Message("user", "2 + 3 =")).hash


@pytest.mark.parametrize(
    ("rewards", "live"), [((0.0, 1.0), True), ((1.0, 1.0), False), ((0.3, 0.3 + 1e-9), False), ((0.5,), False)]
)
def test_live_rollouts_differ_in_reward(rewards: tuple[float, ...], live: bool) -> None:
    group = Scored(rollout(), question(1), rewards)
    assert group.live == live
    assert group.mean_reward == pytest.approx(sum(rewards) / len(rewards))
