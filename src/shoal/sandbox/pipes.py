"""A guarded process, seen from inside; `process.py` and `sources.py` are the other end.

It reads its first message, gets ready, and reports that. On Linux it then forks a process for each connection that it
is sent, ends forks when asked to, and never sees a text itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO, NoReturn

from shoal.child import die_with_parent, own_pipes
from shoal.errors import UserError
from shoal.sandbox.messages import ORDER, Ready, receive, send

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
