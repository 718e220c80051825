"""Worker processes that keep nodes' models: many small nodes on a processor with several cores.

    build = functools.partial(make_nodes, config, checkpoint, threads)    # a function of a module
    workers = Workers(build, {"node-1": "guppy", "node-2": "guppy"}, count=2, threads=1)
    policies = [RemotePolicy(workers, name) for name in workers.nodes]    # and a RemoteLearner for each
    workers.wait_ready(print)
    workers.lockstep.run([node.act for node in nodes])

A worker builds and keeps the policies and learners of its nodes; the rest stays in this process, the driver, without
torch. A result is waited for once all nodes have asked, so that workers compute side by side, each in order.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
from collections.abc import Mapping
from multiprocessing.connection import wait
from typing import Any

from shoal.child import command, start
from shoal.errors import Stopped, UserError
from shoal.parallel.lockstep import Lockstep
from shoal.parallel.worker_process import PAUSE, Build, Status, receive, send
from shoal.protocols import OnProgress

COMMAND = command("shoal.parallel.worker_process")
GRACE = 5.0
"""Seconds between the end of a link and that of its process, at most."""


class Workers:
    """The workers of a run, with the nodes divided among them. Close them."""

    def __init__(self, build: Build, sources: Mapping[str, str], count: int, threads: int) -> None:
        """Starts `count` workers with `threads` threads each, and does not wait. `sources`: the model of each node."""
        self.lockstep = Lockstep()
        self.sources = dict(sources)
        self.trained: dict[str, int] = {}
        """Trained parameters of each node, once the workers are ready."""
        names = list(sources)
        self.nodes = {name: number for number, name in enumerate(names)}
        self._workers: list[_Worker] = []
        try:
            for number in range(count):
                dealt = {name: sources[name] for name in names[number::count]}
                self._workers.append(_Worker(build, dealt, threads))
        except BaseException:
            self.close()
            raise

    def wait_ready(self, status: Status) -> None:
        """Waits until all workers have their models. `status` gets what they load. Raises their errors."""
        told: set[str] = set()

        def once(text: str) -> None:
            if text not in told:
                told.add(text)
                status(text)

        for worker in self._workers:
            worker.on_status = once
        for worker in self._workers:
            self.trained |= self._result(worker, 0)

    def call(self, node: str, part: str, method: str, *arguments: Any, on_progress: OnProgress | None = None) -> Any:
        """The result of a method of a node's policy or learner, in its worker. Within `lockstep.run`, other nodes ask
        meanwhile. `on_progress` gets how far a policy has come; if it raises `Stopped`, all calls with one end."""
        worker = self._workers[self.nodes[node] % len(self._workers)]
        ticket = worker.send((node, part, method, arguments, on_progress is not None))
        self.lockstep.pause()
        try:
            return self._result(worker, ticket, on_progress)
        except Stopped:
            for one in self._workers:
                one.halt()
            raise

    def _result(self, worker: _Worker, ticket: int, on_progress: OnProgress | None = None) -> Any:
        """The result of a request, while the messages of all workers are taken, so that none has to wait. `on_progress`
        is called several times a second. Raises the worker's error, and `UserError` if the worker died."""
        while ticket not in worker.results:
            if worker.ended:
                raise UserError(worker.exit_reason())
            links = {one.link: one for one in self._workers if not one.ended}
            for link in wait(list(links), PAUSE if on_progress else None):
                links[link].take()  # type: ignore[index]
            if on_progress:
                on_progress(worker.answered.get(ticket, 0))
        kind, value = worker.results.pop(ticket)
        worker.answered.pop(ticket, None)
        if kind == "error":
            raise value
        return value

    def close(self) -> None:
        """Ends the workers at once."""
        for worker in self._workers:
            worker.kill()


class _Worker:
    """The driver's end of one process."""

    def __init__(self, build: Build, sources: dict[str, str], threads: int) -> None:
        self.nodes = list(sources)
        self.process, self.link = start(COMMAND, OMP_NUM_THREADS=str(threads))
        self.on_status: Status = lambda text: None
        self.results: dict[int, tuple[str, Any]] = {}
        """By the ticket of the request: how it ended, and its result or error."""
        self.answered: dict[int, int] = {}
        """How far requests have come that report it."""
        self.ended = False
        self._tickets = itertools.count()
        self._ready = False
        self.send((build, sources))

    def send(self, message: Any) -> int:
        """Sends a request. Returns the ticket for its result; that of the start is 0."""
        with contextlib.suppress(OSError):  # `take` notices a dead worker
            send(self.link, message)
        return next(self._tickets)

    def halt(self) -> None:
        """Ends the requests so far that report their progress."""
        with contextlib.suppress(OSError):
            send(self.link, None)

    def take(self) -> None:
        """Takes the next message."""
        try:
            kind, ticket, value = receive(self.link)
        except (EOFError, OSError):
            self.ended = True
            return
        if kind == "status":
            self.on_status(value)
        elif kind == "answered":
            self.answered[ticket] = value
        else:
            self._ready = True
            self.results[ticket] = (kind, value)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.link.close()

    def exit_reason(self) -> str:
        """How the process ended, for the user."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        code = self.process.returncode
        how = f"ended with code {code}" if code is not None else "closed its link"
        if code is not None and code < 0:
            memory = ", perhaps because memory ran out" if code == -signal.SIGKILL else ""
            how = f"was ended by {signal.Signals(-code).name}{memory}"
        message = f"the worker process of {', '.join(self.nodes)} {how}"
        return message + ("; --resume continues from the last checkpoint" if self._ready else " while loading models")
