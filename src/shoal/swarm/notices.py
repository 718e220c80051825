"""What a node says of each of its rounds to whoever watches: how it does, and whose rollouts it learned from.

    shoal/<swarm>/open/notices/<shard>/<id>

Nodes do not listen to these; windows and people do, so a notice crosses the network only where somebody asked for it.
It is signed like a rollout, and no more than its maker's word: nothing is ever learned from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shoal.identity.keys import Identity, name_of, verify
from shoal.swarm.wire import Envelope

SCHEMA_VERSION = 1
DOMAIN = b"shoal notice v1\0"
MAX_BYTES = 16_384
"""Of a notice."""
MAX_LESSONS = 64
"""Rollouts that a notice names."""

Name = Annotated[str, Meta(max_length=256)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Lesson(msgspec.Struct, frozen=True):
    """A rollout that was learned from: whose, of which of the maker's rounds and slots, about which task."""

    maker: Name
    round: Annotated[int, Meta(ge=0, le=2**53)]
    slot: Annotated[int, Meta(ge=0, le=2**16)]
    task: Name


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A round of a node, as it says."""

    schema_version: int
    swarm: Annotated[str, Meta(min_length=1, max_length=64)]
    key: Annotated[bytes, Meta(min_length=32, max_length=32)]
    time: Annotated[float, Meta(ge=0, le=2**53)]
    """Seconds since 1970 by its clock."""
    round: Annotated[int, Meta(ge=0, le=2**53)]
    model: Name | None = None
    reward: Share | None = None
    """Mean of its own unfiltered rollouts."""
    pass_at_1: Share | None = None
    """On held-out questions, where it has just asked itself some."""
    learned: Annotated[tuple[Lesson, ...], Meta(max_length=MAX_LESSONS)] = ()
    """Others' rollouts that it trained on in this round."""

    @property
    def id(self) -> str:
        return self.key.hex()

    @property
    def name(self) -> str:
        """The readable name of its key."""
        return name_of(self.key)


_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(Envelope)
_notices = msgspec.msgpack.Decoder(Notice)


def seal_notice(notice: Notice, identity: Identity, context: bytes = b"") -> bytes:
    """The bytes of `notice`, signed. `context` is what a private swarm signs along."""
    body = _encoder.encode(notice)
    return _encoder.encode(Envelope(body, identity.sign(DOMAIN + context + body)))


def open_notice(data: bytes, swarm: str, context: bytes = b"") -> Notice | None:
    """The notice in `data`, if it is one of this swarm, within bounds and signed by its key; None for anything else."""
    if len(data) > MAX_BYTES:
        return None
    try:
        envelope = _envelopes.decode(data)
        notice = _notices.decode(envelope.statement)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    known = notice.schema_version == SCHEMA_VERSION and notice.swarm == swarm
    return notice if known and verify(notice.key, envelope.signature, DOMAIN + context + envelope.statement) else None


def notice_of(
    row: Mapping[str, Any],
    learned: Sequence[Mapping[str, Any]],
    swarm: str,
    key: bytes,
    model: str | None,
    now: float,
) -> Notice:
    """The notice of a round by its line of metrics and its rows of `learned.parquet`."""
    lessons = [each for each in learned if each["foreign"]][:MAX_LESSONS]
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
    )


def _share(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else min(1.0, max(0.0, value))
