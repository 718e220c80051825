"""What a process and its guarded worker say to each other, and how the worker listens; `process.py` is the other end.

Messages are MessagePack, each after its length in four bytes. A worker reads its first message, gets ready, and reports
that. On Linux it then forks a process for each connection that it is sent, ends forks when asked to, and never sees a
text itself.
"""

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable
from typing import IO, BinaryIO, NoReturn

import msgspec

from shoal.child import die_with_parent, own_pipes
from shoal.errors import UserError
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
    """Empty: the texts are scored. A reason of `shoal.tasks.draw`: the claim is false. "slow question": the time
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


Handler = Callable[[bytes], Iterable[object]]
"""Gives the replies to a request. Each is sent at once."""


def serve(prepare: Callable[[bytes], Handler]) -> None:
    """Serve until the other end is closed. `prepare` makes a handler from the first message, or raises `UserError`."""
    requests, replies = own_pipes()
    stop_watching = die_with_parent()
    try:
        handle = prepare(receive(requests))
    except UserError as error:
        send(replies, Ready(str(error)))
        return
    stop_watching()
    forks = sys.platform == "linux" and _is_single_threaded()  # a fork has no other threads
    if not forks:
        die_with_parent()
    send(replies, Ready(pid=os.getpid(), forks=forks))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # from here on only answers could make it write there
    if forks:
        with requests, replies:
            control = socket.socket(fileno=os.dup(requests.fileno()))
        _fork(control, handle)
    else:
        _answer(requests, replies, handle)


def _is_single_threaded() -> bool:
    """Whether this is the only thread. One that has ended may still be listed for a moment."""
    for _ in range(100):
        if len(os.listdir("/proc/self/task")) == 1:
            return True
        time.sleep(0.01)
    return False


def _answer(requests: BinaryIO, replies: BinaryIO, handle: Handler) -> None:
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        for reply in handle(request):
            send(replies, reply)


def _fork(control: socket.socket, handle: Handler) -> NoReturn:
    """Fork a child for each connection sent over `control`. Ends with `control` or the parent."""
    parent = os.getppid()
    children: dict[int, int] = {}
    gc.collect()
    gc.freeze()  # a collection in a child would copy what it touches
    while os.getppid() == parent:
        if not select.select([control], [], [], 1.0)[0]:
            continue
        order, connections, _, _ = socket.recv_fds(control, ORDER.size, 1)
        if len(order) < ORDER.size:
            break
        old, new = ORDER.unpack(order)
        _end(children.pop(old, 0))
        for connection in connections:
            children[new] = _child(control, connection, handle)
            os.close(connection)
    for child in children.values():
        _end(child)
    os._exit(0)


def _child(control: socket.socket, connection: int, handle: Handler) -> int:
    """The id of a new process that answers on `connection`; 0 if the system has no process left, which the parent
    notices by the end of the connection."""
    above = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        return 0
    if pid:
        with contextlib.suppress(OSError):  # it may have done so, or be gone
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)  # so that what it starts ends with it
        control.close()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # even during an endless scorer
        if os.getppid() == above:
            with socket.socket(fileno=connection) as link:
                requests, replies = link.makefile("rb"), link.makefile("wb")
                send(replies, Ready(pid=os.getpid()))
                _answer(requests, replies, handle)
    finally:
        os._exit(1)


def _end(child: int) -> None:
    if child:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


_PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when its parent ends."""
