"""Worker processes that keep nodes' models: many small nodes on a processor with several cores.

    build = functools.partial(make_nodes, config, checkpoint, threads)    # a function of a module
    workers = Workers(build, {"node-1": "guppy", "node-2": "guppy"}, count=2, threads=1)
    policies = [RemotePolicy(workers, name) for name in workers.nodes]    # and a RemoteLearner for each
    workers.wait_ready(print)
    workers.lockstep.run([node.act for node in nodes])

A worker builds and keeps the policies and learners of its nodes; the rest of a node stays in this process, the driver.
A request to a model is sent at once, and its result is waited for once all nodes have asked, so that workers compute
side by side. Each handles its requests in order, so a run is as repeatable as a plain loop.

Driver and worker exchange pickles over pipes. Torch is imported in the worker alone.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping
from typing import IO, Any

from shoal.child import command, environment
from shoal.errors import Stopped, UserError
from shoal.parallel.lockstep import Lockstep
from shoal.parallel.worker_process import PAUSE, Build, Status, write
from shoal.protocols import OnProgress

COMMAND = command("shoal.parallel.worker_process")
GRACE = 5.0
"""Seconds between the end of a pipe and that of its process, at most."""


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
            self.trained |= worker.result(0, once)

    def call(self, node: str, part: str, method: str, *arguments: Any, on_progress: OnProgress | None = None) -> Any:
        """The result of a method of a node's policy or learner, in its worker. Within `lockstep.run`, other nodes ask
        meanwhile. `on_progress` gets how far a policy has come; if it raises `Stopped`, all calls with one end."""
        worker = self._workers[self.nodes[node] % len(self._workers)]
        ticket = worker.send(node, part, method, arguments, on_progress is not None)
        self.lockstep.pause()
        try:
            return worker.result(ticket, on_progress=on_progress)
        except Stopped:
            for one in self._workers:
                one.halt()
            raise

    def close(self) -> None:
        """Ends the workers at once."""
        for worker in self._workers:
            worker.kill()

    def __len__(self) -> int:
        return len(self._workers)


class _Worker:
    """The driver's end of one process. A thread reads its messages, so that neither side blocks the other."""

    def __init__(self, build: Build, sources: dict[str, str], threads: int) -> None:
        self.nodes = list(sources)
        self.process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(OMP_NUM_THREADS=str(threads)),
            start_new_session=True,  # the driver handles interrupts from the keyboard
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._requests = self.process.stdin
        self._messages: queue.SimpleQueue[tuple[str, int, Any] | None] = queue.SimpleQueue()
        self._results: dict[int, tuple[str, Any]] = {}
        self._tickets = itertools.count()
        self._ready = False
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        self.send(build, sources)

    def send(self, *message: Any) -> int:
        """Sends a request. Returns the ticket for its result; that of the start is 0."""
        with contextlib.suppress(BrokenPipeError):  # `result` notices a dead worker
            write(self._requests, message)
        return next(self._tickets)

    def halt(self) -> None:
        """Ends the requests so far that report their progress."""
        with contextlib.suppress(BrokenPipeError):
            write(self._requests, None)

    def result(self, ticket: int, status: Status = lambda text: None, on_progress: OnProgress | None = None) -> Any:
        """The result of a request. `on_progress` is called several times a second. Raises the worker's error, and
        `UserError` if the worker died."""
        answered = 0
        while ticket not in self._results:
            try:
                message = self._messages.get(timeout=PAUSE if on_progress else None)
            except queue.Empty:
                assert on_progress is not None
                on_progress(answered)
                continue
            if message is None:
                self._messages.put(None)  # for the next call
                raise UserError(self._exit_reason())
            kind, number, value = message
            if kind == "status":
                status(value)
            elif kind == "answered":
                if on_progress and number == ticket:
                    answered = value
                    on_progress(answered)
            else:
                self._results[number] = (kind, value)
        self._ready = True
        kind, value = self._results.pop(ticket)
        if kind == "error":
            raise value
        return value

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()

    def _read(self, replies: IO[bytes]) -> None:
        with replies, contextlib.suppress(EOFError, pickle.UnpicklingError):  # the pickle may be cut short
            while True:
                self._messages.put(pickle.load(replies))
        self._messages.put(None)

    def _exit_reason(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        code = self.process.returncode
        how = f"ended with code {code}"
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
            how += ", perhaps because memory ran out" * (code == -signal.SIGKILL)
        message = f"the worker process of {', '.join(self.nodes)} {how}"
        return message + ("; --resume continues from the last checkpoint" if self._ready else " while loading models")
