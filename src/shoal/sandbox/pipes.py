"""What a process and its guarded worker say to each other, and how the worker listens; `process.py` is the other end.

Messages are MessagePack. A worker reads its first message, gets ready, and reports that. On Linux it then forks a
process for each connection that it is sent, ends forks when asked to, and never sees a text itself.
"""

import contextlib
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import NoReturn

import msgspec

from shoal.child import die_with_parent, own_link
from shoal.errors import UserError
from shoal.rollout import Answer, Question, QuestionId
from shoal.untrusted import encodable


class Job(msgspec.Struct, frozen=True):
    """A completion to score."""

    question: QuestionId
    answer: Answer
    scored: bool = True
    """False: an environment answers the turns, and the conversation goes on."""


class Candidate(msgspec.Struct, frozen=True):
    """A stranger's claim: these texts or conversations answer the question of its key, its round and this slot."""

    question: QuestionId
    question_hash: str
    key: tuple[str | int, ...]
    """(swarm, key in hex, round): what the question is drawn with, see `Tasks.is_drawn`."""
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
    """The error's type and message. Empty for reasoning-gym's scorers: many raise for what is not a number."""
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
    """One for each text, as `Verifier` gives them."""
    seconds: float = 0.0
    """Processor time that it took."""
    observations: tuple[tuple[str, ...], ...] = ()
    """Of each conversation."""


class Ready(msgspec.Struct, frozen=True):
    """A worker is ready, or what keeps it from getting ready."""

    error: str = ""
    pid: int = 0
    forks: bool = False
    """It answers no requests itself, but takes an `Order`."""


class Order(msgspec.Struct, frozen=True):
    """To a worker that forks. 0: none."""

    end: int
    """The number of the fork to end."""
    make: int
    """The number of the fork to make for the connection that follows."""


def readable(answer: Answer) -> Answer:
    """An answer whose texts can be encoded."""
    return encodable(answer) if isinstance(answer, str) else tuple(map(encodable, answer))


def send(link: Connection, message: object) -> None:
    link.send_bytes(msgspec.msgpack.encode(message))


Handler = Callable[[bytes], Iterable[object]]
"""Gives the replies to a request. Each is sent at once."""


def serve(prepare: Callable[[bytes], Handler]) -> None:
    """Serve until the other end is closed. `prepare` makes a handler from the first message, or raises `UserError`."""
    link = own_link()
    stop_watching = die_with_parent()
    try:
        handle = prepare(link.recv_bytes())
    except UserError as error:
        send(link, Ready(str(error)))
        return
    stop_watching()
    forks = sys.platform == "linux" and _is_single_threaded()  # a fork has no other threads
    if not forks:
        die_with_parent()
    send(link, Ready(pid=os.getpid(), forks=forks))
    os.dup2(0, 2)  # from here on only answers could make it write there
    if forks:
        _fork(link, handle)
    _answer(link, handle)


def _is_single_threaded() -> bool:
    """Whether this is the only thread. One that has ended may still be listed for a moment."""
    for _ in range(100):
        if len(os.listdir("/proc/self/task")) == 1:
            return True
        time.sleep(0.01)
    return False


def _answer(link: Connection, handle: Handler) -> None:
    with contextlib.suppress(EOFError):
        while True:
            for reply in handle(link.recv_bytes()):
                send(link, reply)


def _fork(link: Connection, handle: Handler) -> NoReturn:
    """Fork a child for each connection sent over `link`. Ends with `link` or the parent."""
    parent = os.getppid()
    children: dict[int, int] = {}
    gc.collect()
    gc.freeze()  # a collection in a child would copy what it touches
    with contextlib.suppress(EOFError, OSError):
        while os.getppid() == parent:
            if not link.poll(1.0):
                continue
            order = msgspec.msgpack.decode(link.recv_bytes(), type=Order)
            _end(children.pop(order.end, 0))
            if order.make:
                children[order.make] = _child(link, recv_handle(link), handle)
    for child in children.values():
        _end(child)
    os._exit(0)


def _child(control: Connection, descriptor: int, handle: Handler) -> int:
    """The id of a new process that answers on a connection; 0 if there is none left, as the connection's end tells."""
    above = os.getpid()
    with Connection(descriptor) as link:
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
                send(link, Ready(pid=os.getpid()))
                _answer(link, handle)
        finally:
            os._exit(1)


def _end(child: int) -> None:
    if child:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


_PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that a process gets when its parent ends
