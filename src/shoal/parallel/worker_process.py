"""A worker process: it keeps the models of its nodes and serves the driver's requests (`parallel.workers`)."""

import contextlib
import pickle
import queue
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from operator import methodcaller
from typing import Any

from shoal.child import die_with_parent, own_link
from shoal.errors import Stopped, UserError
from shoal.protocols import Learner, OnProgress, progress_to
from shoal.signals import leave_stops_to_parent

PAUSE = 0.2
"""Seconds between two reports of how far a policy has come, at least."""

Status = Callable[[str], None]
Build = Callable[[Mapping[str, str], Status], Mapping[str, tuple[Any, Learner]]]
"""Makes nodes' language policies and learners from the names of nodes and their models, and reports what it loads. It
is pickled by reference."""


def main() -> None:
    """The worker process. It serves until the driver closes the link or dies."""
    link = own_link()
    leave_stops_to_parent()
    die_with_parent()
    with contextlib.suppress(EOFError, OSError):
        build, sources = receive(link)  # imports torch
        parts: dict[tuple[str, str], Any] = {}

        def start() -> dict[str, int]:
            made = build(sources, lambda text: send(link, ("status", 0, text)))
            for name, (policy, learner) in made.items():
                parts[name, "policy"], parts[name, "learner"] = policy, learner
            trained = {name: policy.lm.model.parameters() for name, (policy, _) in made.items()}
            return {name: sum(w.numel() for w in weights if w.requires_grad) for name, weights in trained.items()}

        send(link, _tried(0, ", ".join(sources), start))
        inbox = _Inbox(link)
        while request := inbox.requests.get():
            ticket, (node, part, method, arguments, reports) = request
            with progress_to(parts[node, part], inbox.reporter(ticket) if reports else None):
                send(link, _tried(ticket, node, partial(methodcaller(method, *arguments), parts[node, part])))


class _Inbox:
    """The driver's requests. A thread reads them, so that a halt is seen while another request is worked on."""

    def __init__(self, link: Connection) -> None:
        self.requests: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        """Each with its ticket; None at the end."""
        self._link = link
        self._halted = 0  # requests before this one that report their progress end
        threading.Thread(target=self._read, daemon=True).start()

    def reporter(self, ticket: int) -> OnProgress:
        """Tells the driver how far a request has come. Raises `Stopped` after a halt."""
        said = 0.0

        def on_progress(answered: int) -> None:
            nonlocal said
            if ticket < self._halted:
                raise Stopped
            if time.monotonic() >= said + PAUSE:
                said = time.monotonic()
                send(self._link, ("answered", ticket, answered))

        return on_progress

    def _read(self) -> None:
        ticket = 1
        with contextlib.suppress(EOFError, OSError):
            while True:
                request = receive(self._link)
                if request is None:
                    self._halted = ticket
                else:
                    self.requests.put((ticket, request))
                    ticket += 1
        self.requests.put(None)


def _tried(ticket: int, nodes: str, call: Callable[[], Any]) -> tuple[str, int, Any]:
    """The reply to a request: the result of `call`, or its error. An unexpected error comes with its traceback."""
    try:
        return "done", ticket, call()
    except (UserError, OSError, Stopped) as error:
        return "error", ticket, error
    except Exception as error:  # a bug, which ends the driver
        return "error", ticket, RuntimeError(f"{error}\n\nin the worker of {nodes}:\n{traceback.format_exc()}")


def send(link: Connection, message: Any) -> None:
    """Sends a message to the other end. (`Connection.send` would share the memory of tensors.)"""
    link.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def receive(link: Connection) -> Any:
    """The next message. Raises `EOFError` or `OSError` at the end."""
    return pickle.loads(link.recv_bytes())
