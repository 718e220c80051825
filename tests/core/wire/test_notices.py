"""Notices: what a node says of its rounds is signed, bounded, and nothing else gets through."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.identity.keys import Identity
from shoal.wire.notices import MAX_BYTES, MAX_LESSONS, Lesson, Limit, Notice, notice_of, open_notice, seal_notice
from shoal.wire.signed import AHEAD, OLD

NOW = 1000.0


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return Identity.load_or_create(tmp_path_factory.mktemp("ada") / "identity.pem")


def notice(identity: Identity, **changes: object) -> Notice:
    said = Notice(1, "reef", identity.public, NOW, 7, "guppy", 0.25, None, (Lesson("bob", 3, 1, "gcd"),))
    return msgspec.structs.replace(said, **changes)


def test_what_was_said_comes_back_under_the_name_of_the_key(ada: Identity) -> None:
    said = notice(ada)
    found = open_notice(seal_notice(said, ada), "reef", NOW)
    assert found == said
    assert found.name == ada.name
    assert found.id == ada.id


def test_a_notice_of_another_key_swarm_secret_or_version_is_none(ada: Identity, tmp_path: Path) -> None:
    bob = Identity.load_or_create(tmp_path / "identity.pem")
    assert open_notice(seal_notice(notice(ada), bob), "reef", NOW) is None  # signed by somebody else
    assert open_notice(seal_notice(notice(ada), ada), "shelf", NOW) is None
    assert open_notice(seal_notice(notice(ada), ada), "reef", NOW, b"secret") is None
    assert open_notice(seal_notice(notice(ada), ada, b"secret"), "reef", NOW, b"secret") is not None
    assert open_notice(seal_notice(notice(ada, schema_version=2), ada), "reef", NOW) is None


@pytest.mark.parametrize("age", [-AHEAD - 1, OLD + 1, 30 * 86_400.0])
def test_what_was_signed_long_ago_or_in_the_future_is_none(ada: Identity, age: float) -> None:
    """Anybody who heard it can send it again for ever."""
    data = seal_notice(notice(ada), ada)
    assert open_notice(data, "reef", NOW + age) is None
    for allowed in (-AHEAD, OLD):
        assert open_notice(data, "reef", NOW + allowed) is not None


@pytest.mark.parametrize("changes", [{"reward": 1.5}, {"round": -1}, {"model": "x" * 300}, {"reward": float("nan")}])
def test_what_is_out_of_bounds_is_none(ada: Identity, changes: dict[str, object]) -> None:
    assert open_notice(seal_notice(notice(ada, **changes), ada), "reef", NOW) is None


def test_too_many_lessons_or_bytes_are_none(ada: Identity) -> None:
    lesson = Lesson("bob", 3, 1, "gcd")
    assert open_notice(seal_notice(notice(ada, learned=(lesson,) * (MAX_LESSONS + 1)), ada), "reef", NOW) is None
    assert open_notice(b"x" * (MAX_BYTES + 1), "reef", NOW) is None


@given(data=st.binary(max_size=300))
def test_whatever_the_bytes_nothing_is_raised(data: bytes) -> None:
    assert open_notice(data, "reef", NOW) is None


@given(place=st.integers(0, 400), bit=st.integers(0, 7))
def test_a_changed_bit_is_noticed(ada: Identity, place: int, bit: int) -> None:
    data = bytearray(seal_notice(notice(ada), ada))
    data[place % len(data)] ^= 1 << bit
    assert open_notice(bytes(data), "reef", NOW) is None


def test_it_is_made_of_a_round_s_metrics_and_lessons(ada: Identity) -> None:
    row = {"round": 4, "reward/local": 0.5, "eval/pass@1": None}
    learned = [
        {"maker": "bob", "made": 2, "slot": 0, "task": "gcd", "peer": True},
        {"maker": ada.name, "made": 4, "slot": 1, "task": "lcm", "peer": False},
    ]
    limited = {"x" * 300: (8, 0.27)} | {str(number): (1, 0.1) for number in range(80)}
    said = notice_of(row, learned, "reef", ada.public, None, NOW, "", limited)
    assert said.limited[0] == Limit("x" * 256, 8, 0.27)
    assert len(said.limited) == MAX_LESSONS
    assert (said.round, said.reward, said.pass_at_1) == (4, 0.5, None)
    assert said.learned == (Lesson("bob", 2, 0, "gcd"),)
    assert open_notice(seal_notice(said, ada), "reef", NOW) == said
