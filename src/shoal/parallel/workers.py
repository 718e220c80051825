"""Worker processes that keep nodes' models, for many small nodes on a processor with several cores.

    workers = Workers({"node-1": "guppy", "node-2": "guppy"}, 2, config, checkpoint, threads=1)
    policies = [RemotePolicy(workers, name) for name in workers.nodes]    # and a RemoteLearner of each
    workers.wait_ready(print)
    workers.company.together([node.act for node in nodes])

A worker builds and keeps the policies and learners of its nodes; all else of a node stays in the driver, this process.
What is asked of a model is sent at once and waited for once all nodes have asked, so that workers compute side by side;
each does what it is told in the order in which it is told, so a run is as repeatable as a plain loop.

Driver and worker speak by pickles over pipes. Torch is imported in the worker alone.
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
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.parallel.lockstep import Company
from shoal.rollout import Completion, Question, Scored
from shoal.sandbox.pipes import die_with_parent, own_pipes

COMMAND = (sys.executable, "-P", "-m", "shoal.parallel.workers")
GRACE = 5.0
"""Seconds that the end of a process may take to be known after its pipe has ended."""


class Workers:
    """The workers of a run, with the nodes dealt over them. Close them."""

    def __init__(
        self, sources: Mapping[str, str], count: int, config: Config, checkpoint: Path | None, threads: int
    ) -> None:
        """Starts them and waits for nothing. `sources`: the model of each node; `checkpoint`: what it has come to."""
        self.company = Company()
        self.sources = dict(sources)
        self.trained: dict[str, int] = {}
        """Trained parameters of each node, once the workers are ready."""
        names = list(sources)
        self.nodes = {name: number for number, name in enumerate(names)}
        self._workers: list[_Worker] = []
        try:
            for number in range(count):
                hand = {name: sources[name] for name in names[number::count]}
                self._workers.append(_Worker(hand, config, checkpoint, threads))
        except BaseException:
            self.close()
            raise

    def wait_ready(self, status: Callable[[str], None]) -> None:
        """Returns once all have their models; `status` is told what they load. Raises what kept one from it."""
        told: set[str] = set()

        def once(text: str) -> None:
            if text not in told:
                told.add(text)
                status(text)

        for worker in self._workers:
            self.trained |= worker.result(0, once)

    def call(self, node: str, part: str, method: str, *arguments: Any) -> Any:
        """What a method of a node's policy or learner gives, in its worker. In company others ask meanwhile."""
        number = self.nodes[node]
        worker = self._workers[number % len(self._workers)]
        ticket = worker.send(node, part, method, arguments)
        if not self.company.present:
            return worker.result(ticket)
        return self.company.ask(_results, "workers", number, (worker, ticket))

    def close(self) -> None:
        """Ends them at once, whatever they do."""
        for worker in self._workers:
            worker.kill()

    def __len__(self) -> int:
        return len(self._workers)


class RemotePolicy:
    """A node's language model in a worker."""

    trouble = ""
    """As in `LanguagePolicy`: it gives all that it is asked for."""

    def __init__(self, workers: Workers, node: str) -> None:
        self.name = workers.sources[node]
        self.node = node
        self.workers = workers

    @property
    def trained(self) -> int:
        """How many parameters are trained."""
        return self.workers.trained[self.node]

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        groups: list[tuple[Completion, ...]] = self._call("generate", list(questions), num_generations, seed)
        return groups

    def control_strings(self) -> frozenset[str]:
        strings: frozenset[str] = self._call("control_strings")
        return strings

    def save(self, folder: Path) -> None:
        self._call("save", folder.absolute())

    def _call(self, method: str, *arguments: Any) -> Any:
        return self.workers.call(self.node, "policy", method, *arguments)


class RemoteLearner:
    """A node's learner, beside its model."""

    def __init__(self, workers: Workers, node: str) -> None:
        self.node = node
        self.workers = workers

    def update(self, scored: Sequence[Scored], seed: int = 0) -> dict[str, float]:
        metrics: dict[str, float] = self._call("update", list(scored), seed)
        return metrics

    def save(self, folder: Path) -> None:
        self._call("save", folder.absolute())

    def load(self, folder: Path) -> None:
        self._call("load", folder.absolute())

    def _call(self, method: str, *arguments: Any) -> Any:
        return self.workers.call(self.node, "learner", method, *arguments)


class _Worker:
    """The driver's end of one process. A thread reads what it says, so that neither ever waits for the other to."""

    def __init__(self, sources: dict[str, str], config: Config, checkpoint: Path | None, threads: int) -> None:
        self.nodes = list(sources)
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        self.process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)},
            start_new_session=True,  # an interrupt from the keyboard is the driver's to handle
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._requests = self.process.stdin
        self._messages: queue.SimpleQueue[tuple[str, int, Any] | None] = queue.SimpleQueue()
        self._results: dict[int, tuple[str, Any]] = {}
        self._tickets = itertools.count()
        self._ready = False
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        self.send(config.model_dump(), sources, checkpoint.absolute() if checkpoint else None, threads)

    def send(self, *message: Any) -> int:
        """Has something done. Returns the ticket for its result; the first, 0, is that of the start."""
        with contextlib.suppress(BrokenPipeError):  # a dead worker shows when its result is waited for
            _write(self._requests, message)
        return next(self._tickets)

    def result(self, ticket: int, status: Callable[[str], None] = lambda text: None) -> Any:
        """What came of it. Raises the worker's error, and `UserError` if it died."""
        while ticket not in self._results:
            message = self._messages.get()
            if message is None:
                self._messages.put(None)  # for whoever asks again
                raise UserError(self._obituary())
            kind, number, value = message
            if kind == "status":
                status(value)
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
        with replies, contextlib.suppress(EOFError, pickle.UnpicklingError):  # a pickle cut short is one of the two
            while True:
                self._messages.put(pickle.load(replies))
        self._messages.put(None)

    def _obituary(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        code = self.process.returncode
        how = f"ended with code {code}"
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
            how += ", which may be for want of memory" * (code == -signal.SIGKILL)
        kept = f"the worker process that kept {', '.join(self.nodes)} {how}"
        return kept + ("; --resume goes on from the last checkpoint" if self._ready else " before it had its models")


def _results(_: Any, asked: dict[int, tuple[_Worker, int]]) -> dict[int, Any]:
    """What came of the work of each node."""
    return {number: worker.result(ticket) for number, (worker, ticket) in asked.items()}


def _write(stream: IO[bytes], message: Any) -> None:
    pickle.dump(message, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def main() -> None:
    """The worker: serves until the driver closes its end or is gone."""
    requests, replies = own_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    with contextlib.suppress(EOFError, BrokenPipeError, pickle.UnpicklingError):
        settings, sources, checkpoint, threads = pickle.load(requests)
        parts: dict[tuple[str, str], Any] = {}

        def build() -> dict[str, int]:
            from shoal.runs.models import make_nodes  # torch, only now

            config = Config.model_validate(settings)
            made = make_nodes(config, sources, checkpoint, threads, lambda text: _write(replies, ("status", 0, text)))
            for name, (policy, learner) in made.items():
                parts[name, "policy"], parts[name, "learner"] = policy, learner
            trained = {name: policy.lm.model.parameters() for name, (policy, _) in made.items()}
            return {name: sum(w.numel() for w in weights if w.requires_grad) for name, weights in trained.items()}

        _write(replies, _tried(0, ", ".join(sources), build))
        for ticket in itertools.count(1):
            node, part, method, arguments = pickle.load(requests)
            _write(replies, _tried(ticket, node, lambda: getattr(parts[node, part], method)(*arguments)))  # noqa: B023


def _tried(ticket: int, whose: str, call: Callable[[], Any]) -> tuple[str, int, Any]:
    """The message of what came of `call`. What is no mistake of the user's or the disk's is told with its place."""
    try:
        return "done", ticket, call()
    except (UserError, OSError) as error:
        return "error", ticket, error
    except Exception as error:  # a bug: it is the driver's to end
        return "error", ticket, RuntimeError(f"{error}\n\nin the worker of {whose}:\n{traceback.format_exc()}")


if __name__ == "__main__":
    main()
