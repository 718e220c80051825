"""What a process and its guarded worker say to each other: MessagePack, each message after its length in four bytes."""

from __future__ import annotations

import struct
from typing import IO

import msgspec

from shoal.rollout import Answer, Question, QuestionId
from shoal.untrusted import encodable

_LENGTH = struct.Struct(">I")
ORDER = struct.Struct(">II")
"""To a process that forks: the number of the fork to end, and that of the fork to make for the connection sent with it.
0: none."""


class Job(msgspec.Struct, frozen=True):
    """A completion to score."""

    question: QuestionId
    answer: Answer
    scored: bool = True
    """False: an environment answers the turns, and the conversation goes on."""


class Candidate(msgspec.Struct, frozen=True):
    """A stranger's claim: these texts, or conversations, answer the question that its key, its round and this slot
    give."""

    question: QuestionId
    question_hash: str | None
    """None: not checked."""
    key: tuple[str | int, ...]
    """(swarm, key in hex, round): what the question is drawn with, see `Tasks.is_drawn`. Empty: it is not checked."""
    slot: int
    texts: tuple[Answer, ...]
    cut: tuple[bool, ...] = ()
    """Of each conversation: whether it was cut short."""


Request = list[Job] | Candidate


class Made(msgspec.Struct, frozen=True, tag=True):
    """The question is made: from here on time is spent on scoring."""

    programs: bool = False
    """Its answers are programs, or an environment answers back: what runs for too long has no verdict."""


class Result(msgspec.Struct, frozen=True, tag=True):
    """The raw score of a job, or why it has none."""

    score: float | None = 0.0
    """None: nobody can say whether it is right, and `failure` says why."""
    failure: str = ""
    detail: str = ""
    """The error's type and message, in one line. Empty for an error of reasoning-gym's scorers: many raise for an
    answer that is simply not a number."""
    observations: tuple[str, ...] = ()
    """What an environment answered to each turn, up to the one that ended the conversation."""
    ended: bool = False
    """Whether one did."""


class Verdict(msgspec.Struct, frozen=True, tag=True):
    """What an examiner finds."""

    reason: str = ""
    """Empty: the texts are scored. A reason of `shoal.tasks.validation`: the claim is false. "slow question": the time
    ran out, or the process died, while the question was made, which is nobody's fault. "slow", "crash": the time ran
    out, or the process died, while a text was scored. "slow task": the time ran out in the task's own code, which is
    nobody's fault. "no verdict": nobody can say of any of the texts whether it is right. "replay": a conversation ends
    elsewhere here. "environment": the environment failed in one."""
    question: Question | None = None
    rewards: tuple[float, ...] = ()
    """In [0, 1], one for each text, as `Verifier` gives them."""
    seconds: float = 0.0
    """Processor time that it took."""
    observations: tuple[tuple[str, ...], ...] = ()
    """Of each conversation."""


class Ready(msgspec.Struct, frozen=True):
    """A worker is ready, or what keeps it from getting ready."""

    error: str = ""
    pid: int = 0
    forks: bool = False
    """It answers no requests itself: it forks a process for each connection that it is sent (`ORDER`)."""


def readable(answer: Answer) -> Answer:
    """An answer whose texts can be encoded."""
    return encodable(answer) if isinstance(answer, str) else tuple(map(encodable, answer))


def send(stream: IO[bytes], message: object) -> None:
    """Write one message and flush it."""
    data = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """The next message, encoded. Raises `EOFError` at the end of the stream."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(header)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data
