"""What the verifier and its worker say to each other: MessagePack, each message after its length in four bytes."""

from __future__ import annotations

import struct
from typing import IO

import msgspec

from shoal.rollout import QuestionId

_LENGTH = struct.Struct(">I")


class Job(msgspec.Struct, frozen=True):
    """A completion to score."""

    question: QuestionId
    text: str


class Result(msgspec.Struct, frozen=True):
    """Its raw score, or why it has none."""

    score: float = 0.0
    failure: str = ""


class Ready(msgspec.Struct, frozen=True):
    """The worker has made its tasks, or what is wrong with them."""

    error: str = ""


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
