"""A notice: what a node says of one of its rounds to people who watch. How it does, and whose rollouts it learned from.

Windows and people subscribe to notices, and nodes of a small swarm, to say who limits them. A notice is signed like a
rollout, but it is only its sender's word: no node ever learns from it.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shoal.identity.keys import Identity, name_of
from shoal.wire.signed import SignedMessage, is_fresh, is_signed, read_message, sign_message

SCHEMA_VERSION = 1
DOMAIN = b"shoal notice v1\0"
MAX_BYTES = 16_384  # of a notice
MAX_LESSONS = 64  # rollouts that a notice names

Name = Annotated[str, Meta(max_length=256)]
Share = Annotated[float, Meta(ge=0, le=1)]
Round = Annotated[int, Meta(ge=0, le=2**53)]


Limits = Mapping[str, tuple[int, float]]
"""What `Shortener.limits` says."""


class Lesson(msgspec.Struct, frozen=True):
    """A rollout that a node learned from: its maker, the maker's round and slot, and the task."""

    maker: Name
    round: Round
    slot: Annotated[int, Meta(ge=0, le=2**16)]
    task: Name


class Limit(msgspec.Struct, frozen=True):
    """A maker from which a node does not learn, for how many rounds of its own, and the share of the words in the
    maker's right answers that were not needed."""

    maker: Name
    rounds: Round
    share: Share


class Notice(SignedMessage, frozen=True):
    """A round of a node, in its own words."""

    round: Round
    model: Name | None = None
    reward: Share | None = None
    """Mean reward of its own unfiltered rollouts; None if it is not in [0, 1]."""
    pass_at_1: Share | None = None
    """On held-out questions, in rounds in which it evaluated."""
    learned: Annotated[tuple[Lesson, ...], Meta(max_length=MAX_LESSONS)] = ()
    """Others' rollouts that it trained on in this round."""
    limited: Annotated[tuple[Limit, ...], Meta(max_length=MAX_LESSONS)] = ()
    display_name: Name | None = None
    """What its owner calls it."""
    left: bool = False
    """Whether the node ends in order after this round."""

    @property
    def name(self) -> str:
        """The readable name of its key."""
        return name_of(self.key)


_notices = msgspec.msgpack.Decoder(Notice)


def seal_notice(notice: Notice, identity: Identity, context: bytes = b"") -> bytes:
    """The bytes of `notice`, signed. `context`: what a private swarm signs with it."""
    return sign_message(DOMAIN + context, notice, identity)


def open_notice(data: bytes, swarm: str, now: float, context: bytes = b"") -> Notice | None:
    """The notice in `data` if it is of this swarm, within bounds, fresh and signed by its key; otherwise None."""
    read = read_message(data, _notices, swarm, SCHEMA_VERSION) if len(data) <= MAX_BYTES else None
    return read[0] if read and is_fresh(read[0], now) and is_signed(DOMAIN + context, *read) else None


def notice_of(
    row: Mapping[str, Any],
    learned: Sequence[Mapping[str, Any]],
    swarm: str,
    key: bytes,
    model: str | None,
    now: float,
    display_name: str,
    limited: Limits,
) -> Notice:
    """The notice of a round, from its row of metrics and its rows of `learned.parquet`."""
    lessons = [each for each in learned if each["peer"]][:MAX_LESSONS]
    return Notice(
        SCHEMA_VERSION,
        swarm,
        key,
        now,
        int(row["round"]),
        model and model[:256],
        _share(row.get("reward/local")),
        _share(row.get("eval/pass@1")),
        tuple(Lesson(each["maker"][:256], each["made"], each["slot"], each["task"][:256]) for each in lessons),
        tuple(Limit(name[:256], *found) for name, found in [*limited.items()][:MAX_LESSONS]),
        display_name or None,
    )


def _share(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= 1 else None
