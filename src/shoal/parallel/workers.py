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
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import IO, Any

from shoal.errors import Stopped, UserError
from shoal.parallel.lockstep import Lockstep
from shoal.policy.too_long import too_long
from shoal.protocols import Learner, OnProgress, TrainablePolicy, UpdateResult, progress_to
from shoal.rollout import Completion, Question, Scored
from shoal.sandbox.import_path import import_path
from shoal.sandbox.pipes import die_with_parent, own_pipes

COMMAND = (sys.executable, "-P", "-m", "shoal.parallel.workers")
GRACE = 5.0
"""Seconds between the end of a pipe and that of its process, at most."""

PAUSE = 0.2
"""Seconds between two reports of how far a policy has come, at least."""

Status = Callable[[str], None]
Build = Callable[[Mapping[str, str], Status], Mapping[str, tuple[TrainablePolicy, Learner]]]
"""Makes nodes' policies and learners from the names of nodes and their models, and reports what it loads. It is pickled
by reference."""


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


class RemotePolicy:
    """A node's language model in a worker."""

    def __init__(self, workers: Workers, node: str) -> None:
        self.name = workers.sources[node]
        self.node = node
        self.workers = workers
        self.on_progress: OnProgress | None = None
        self.trouble = ""
        """As in `LanguagePolicy`."""

    @property
    def trained(self) -> int:
        """Trained parameters."""
        return self.workers.trained[self.node]

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        asked = ("generate", list(questions), num_generations, seed)
        groups: list[tuple[Completion, ...]] = self.workers.call(
            self.node, "policy", *asked, on_progress=self.on_progress
        )
        self.trouble = too_long(groups)
        return groups

    def cost(self, questions: Sequence[Question], answers: Sequence[Sequence[Completion]]) -> tuple[int, float]:
        cost: tuple[int, float] = self._call("cost", list(questions), list(answers))
        return cost

    def save(self, folder: Path) -> None:
        self._call("save", folder.absolute())

    def _call(self, method: str, *arguments: Any) -> Any:
        return self.workers.call(self.node, "policy", method, *arguments)


class RemoteLearner:
    """A node's learner in a worker."""

    def __init__(self, workers: Workers, node: str) -> None:
        self.node = node
        self.workers = workers

    def update(self, batch: Sequence[Scored], seed: int = 0) -> UpdateResult:
        result: UpdateResult = self._call("update", list(batch), seed)
        return result

    def save(self, folder: Path) -> None:
        self._call("save", folder.absolute())

    def load(self, folder: Path) -> None:
        self._call("load", folder.absolute())

    def _call(self, method: str, *arguments: Any) -> Any:
        return self.workers.call(self.node, "learner", method, *arguments)


class _Worker:
    """The driver's end of one process. A thread reads its messages, so that neither side blocks the other."""

    def __init__(self, build: Build, sources: dict[str, str], threads: int) -> None:
        self.nodes = list(sources)
        self.process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": import_path(), "OMP_NUM_THREADS": str(threads)},
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
            _write(self._requests, message)
        return next(self._tickets)

    def halt(self) -> None:
        """Ends the requests so far that report their progress."""
        with contextlib.suppress(BrokenPipeError):
            _write(self._requests, None)

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


def _write(stream: IO[bytes], message: Any) -> None:
    pickle.dump(message, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def main() -> None:
    """The worker process. It serves until the driver closes the pipe or dies."""
    requests, replies = own_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    with contextlib.suppress(EOFError, BrokenPipeError, pickle.UnpicklingError):
        build, sources = pickle.load(requests)  # imports torch
        parts: dict[tuple[str, str], Any] = {}

        def start() -> dict[str, int]:
            made = build(sources, lambda text: _write(replies, ("status", 0, text)))
            for name, (policy, learner) in made.items():
                parts[name, "policy"], parts[name, "learner"] = policy, learner
            trained = {name: policy.lm.model.parameters() for name, (policy, _) in made.items()}
            return {name: sum(w.numel() for w in weights if w.requires_grad) for name, weights in trained.items()}

        _write(replies, _tried(0, ", ".join(sources), start))
        inbox = _Inbox(requests)
        while request := inbox.next():
            ticket, (node, part, method, arguments, reports) = request
            with progress_to(parts[node, part], inbox.reporter(ticket, replies) if reports else None):
                _write(replies, _tried(ticket, node, partial(methodcaller(method, *arguments), parts[node, part])))


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
                _write(replies, ("answered", ticket, answered))

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


if __name__ == "__main__":
    main()
