"""Many jobs over the cores of this machine, each in a process of its own.

    for event in run_jobs([(function, arguments), ...], count=2): ...

A process that dies, or a job that fails, costs that job alone. (The executors of concurrent.futures fail all jobs when
one process dies.) Nothing is left running when the caller is gone.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, cast

from shoal.child import die_with_parent
from shoal.errors import UserError

Job = tuple[Callable[..., None], tuple[Any, ...]]
"""A function of a module and its arguments. It gets one more argument: a function that reports progress."""

GRACE = 5.0
"""Seconds that a process has to end when its job is done."""


@dataclass(frozen=True)
class Event:
    """News of a job."""

    job: int
    kind: str
    """progress, done or failed."""
    value: Any = None


def run_jobs(jobs: Sequence[Job], count: int) -> Generator[Event, None, None]:
    """Runs all `jobs`, up to `count` at once with a thread each, and yields what happens. Closing the iterator kills
    the processes."""
    context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    if sys.platform == "linux":  # torch is imported once, where nothing runs; elsewhere it does not outlive a fork
        context.set_forkserver_preload(["shoal_lab.experiment"])
    waiting = deque(enumerate(jobs))
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < count:
                job, work = waiting.popleft()
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(there, *work))
                process.start()
                there.close()
                running[here] = job, process
            for pipe in cast(list[Connection], wait(list(running))):
                job, process = running[pipe]
                try:
                    kind, value = pipe.recv()
                except (EOFError, OSError):
                    process.join()
                    kind, value = "failed", f"its process ended with code {process.exitcode}"
                if kind != "progress":
                    process.join(GRACE if kind == "done" else 0)
                    process.kill()
                    process.join()
                    pipe.close()
                    del running[pipe]
                yield Event(job, kind, value)
    finally:
        for _, process in running.values():
            process.kill()
        for _, process in running.values():
            process.join()


def _work(pipe: Connection, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Does one job, in its process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt from the keyboard is the caller's to handle
    os.environ["OMP_NUM_THREADS"] = "1"
    die_with_parent()
    import torch

    torch.set_num_threads(1)
    try:
        function(*arguments, lambda value: pipe.send(("progress", value)))
    except (UserError, OSError) as error:
        pipe.send(("failed", str(error)))
    except Exception:  # a bug ends the job, and is shown
        pipe.send(("failed", traceback.format_exc()))
    else:
        pipe.send(("done", None))
