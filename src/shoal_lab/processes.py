"""Many jobs over the cores of this machine, each in a process of its own.

    for event in run_jobs([(function, arguments), ...], count=2): ...

A process that dies, or a job that fails, costs that job alone. (The executors of concurrent.futures, loky and joblib
fail all jobs when one process dies.) On Linux processes are forks of one that has torch loaded: they begin in
milliseconds and share its memory. Nothing is left running when the caller is gone.
"""

import multiprocessing
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from pebble import ProcessExpired, ProcessPool

from shoal.child import die_with_parent
from shoal.errors import UserError
from shoal.signals import leave_stops_to_parent

Job = tuple[Callable[..., None], tuple[Any, ...]]
"""A function of a module and its arguments. It gets one more argument: a function that reports progress."""
_told: Connection
"""In a process: where it reports to. What it sends is short, so that nothing of it gets lost when it is killed."""
PAUSE: Final = 0.2
"""Seconds between two looks at what processes report."""


@dataclass(frozen=True)
class Event:
    """News of a job."""

    job: int
    kind: str
    """progress, done, failed, or on Ray lost: it is tried again."""
    value: Any = None


def run_jobs(jobs: Sequence[Job], count: int) -> Generator[Event, None, None]:
    """Runs all `jobs` in up to `count` processes with a thread each, and yields what happens. Closing the iterator ends
    the processes at once."""
    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload(["shoal_lab.experiment"])
    heard, told = context.Pipe(duplex=False)
    pool: Any = ProcessPool(count, max_tasks=1, initializer=_begin, initargs=(told,), context=context)
    try:
        left: dict[Future[None], int] = {
            pool.schedule(_work, (number, *job)): number for number, job in enumerate(jobs)
        }
        while left:
            ended = wait(left, PAUSE, FIRST_COMPLETED).done
            while heard.poll():
                yield Event(*heard.recv())
            for future in ended:
                yield Event(left.pop(future), *_outcome(future))
    finally:
        pool.stop()
        pool.join()


def _begin(told: Connection) -> None:
    global _told
    import torch

    _told = told
    leave_stops_to_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which the pool ends its processes
    die_with_parent()
    torch.set_num_threads(1)


def _work(number: int, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    function(*arguments, lambda value: _told.send((number, "progress", value)))


def _outcome(future: Future[None]) -> tuple[str, str]:
    """How a job ended: the kind of an event and its value."""
    error = future.exception()
    if error is None:
        return "done", ""
    if isinstance(error, ProcessExpired):
        return "failed", f"its process ended with code {error.exitcode}"
    return "failed", str(error) if isinstance(error, UserError | OSError) else getattr(error, "traceback", str(error))
