"""A worker process: it keeps the models of its nodes and serves the driver's requests (`parallel.workers`)."""

import contextlib
import pickle
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from operator import methodcaller
from typing import IO, Any

from shoal.child import die_with_parent, own_pipes
from shoal.errors import Stopped, UserError
from shoal.protocols import Learner, OnProgress, progress_to

PAUSE = 0.2
"""Seconds between two reports of how far a policy has come, at least."""

Status = Callable[[str], None]
Build = Callable[[Mapping[str, str], Status], Mapping[str, tuple[Any, Learner]]]
"""Makes nodes' language policies and learners from the names of nodes and their models, and reports what it loads. It
is pickled by reference."""


def main() -> None:
    """The worker process. It serves until the driver closes the pipe or dies."""
    requests, replies = own_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    with contextlib.suppress(EOFError, BrokenPipeError, pickle.UnpicklingError):
        build, sources = pickle.load(requests)  # imports torch
        parts: dict[tuple[str, str], Any] = {}

        def start() -> dict[str, int]:
            made = build(sources, lambda text: write(replies, ("status", 0, text)))
            for name, (policy, learner) in made.items():
                parts[name, "policy"], parts[name, "learner"] = policy, learner
            trained = {name: policy.lm.model.parameters() for name, (policy, _) in made.items()}
            return {name: sum(w.numel() for w in weights if w.requires_grad) for name, weights in trained.items()}

        write(replies, _tried(0, ", ".join(sources), start))
        inbox = _Inbox(requests)
        while request := inbox.next():
            ticket, (node, part, method, arguments, reports) = request
            with progress_to(parts[node, part], inbox.reporter(ticket, replies) if reports else None):
                write(replies, _tried(ticket, node, partial(methodcaller(method, *arguments), parts[node, part])))


class _Inbox:
    """The driver's requests. A thread reads them, so that a halt is seen while another request is worked on."""

    def __init__(self, requests: IO[bytes]) -> None:
        self._queue: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        self._halted = 0  # requests before this one that report their progress end
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()

    def next(self) -> tuple[int, Any] | None:
        """The next request with its ticket; None at the end."""
        return self._queue.get()

    def reporter(self, ticket: int, replies: IO[bytes]) -> OnProgress:
        """Tells the driver how far a request has come. Raises `Stopped` after a halt."""
        said = 0.0

        def on_progress(answered: int) -> None:
            nonlocal said
            if ticket < self._halted:
                raise Stopped
            if time.monotonic() >= said + PAUSE:
                said = time.monotonic()
                write(replies, ("answered", ticket, answered))

        return on_progress

    def _read(self, requests: IO[bytes]) -> None:
        ticket = 1
        try:
            with contextlib.suppress(EOFError, pickle.UnpicklingError):
                while True:
                    request = pickle.load(requests)
                    if request is None:
                        self._halted = ticket
                    else:
                        self._queue.put((ticket, request))
                        ticket += 1
        finally:
            self._queue.put(None)


def _tried(ticket: int, nodes: str, call: Callable[[], Any]) -> tuple[str, int, Any]:
    """The reply to a request: the result of `call`, or its error. An unexpected error comes with its traceback."""
    try:
        return "done", ticket, call()
    except (UserError, OSError, Stopped) as error:
        return "error", ticket, error
    except Exception as error:  # a bug, which ends the driver
        return "error", ticket, RuntimeError(f"{error}\n\nin the worker of {nodes}:\n{traceback.format_exc()}")


def write(stream: IO[bytes], message: Any) -> None:
    """Sends a message to the other end of a pipe."""
    pickle.dump(message, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()
