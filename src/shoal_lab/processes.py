"""Many jobs over the cores of this machine, each in a process that stays for the next.

    for event in run_jobs([(function, arguments), ...], count=2): ...

A process that dies, or a job that fails, costs that job alone: the next gets a fresh process. (The executors of
concurrent.futures fail all jobs when one process dies.) Nothing is left running when the caller is gone.
"""

import contextlib
import multiprocessing
import os
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from shoal.child import die_with_parent
from shoal.errors import UserError
from shoal.signals import leave_stops_to_parent

Job = tuple[Callable[..., None], tuple[Any, ...]]
"""A function of a module and its arguments. It gets one more argument: a function that reports progress."""

GRACE = 5.0
"""Seconds that an idle process has to end."""


@dataclass(frozen=True)
class Event:
    """News of a job."""

    job: int
    kind: str
    """progress, done or failed."""
    value: Any = None


@dataclass
class _Slot:
    process: BaseProcess
    pipe: Connection
    job: int | None = None


def run_jobs(jobs: Sequence[Job], count: int) -> Generator[Event, None, None]:
    """Runs all `jobs` in up to `count` processes with a thread each, and yields what happens. Closing the iterator ends
    the processes, busy ones at once."""
    context = multiprocessing.get_context("spawn")
    waiting = deque(enumerate(jobs))
    slots: list[_Slot] = []
    try:
        while waiting or any(slot.job is not None for slot in slots):
            # one may have died idle
            slots = [slot for slot in slots if slot.job is not None or slot.process.is_alive()]
            while waiting and len(slots) < count:
                slots.append(_start(context))
            for slot in slots:
                if slot.job is None and waiting:
                    slot.job, job = waiting.popleft()
                    with contextlib.suppress(OSError):  # it died just now, as `recv` will tell
                        slot.pipe.send(job)
            ready = wait([slot.pipe for slot in slots if slot.job is not None])
            for slot in [slot for slot in slots if slot.pipe in ready]:
                assert slot.job is not None
                try:
                    kind, value = slot.pipe.recv()
                except (EOFError, OSError):
                    slot.process.join()
                    kind, value = "failed", f"its process ended with code {slot.process.exitcode}"
                if kind == "failed":  # once a GPU fails a process, it fails all that follows there
                    slot.process.kill()
                    slot.process.join()
                    slots.remove(slot)
                yield Event(slot.job, kind, value)
                if kind != "progress":
                    slot.job = None
    finally:
        for slot in slots:
            if slot.job is not None:
                slot.process.kill()
            slot.pipe.close()  # by which an idle one ends, and tidies up
        for slot in slots:
            slot.process.join(GRACE)
            slot.process.kill()
            slot.process.join()


def _start(context: Any) -> _Slot:
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=False)
    process.start()
    there.close()
    return _Slot(process, here)


def _serve(pipe: Connection) -> None:
    """A process: does what it is sent until the pipe ends."""
    leave_stops_to_parent()
    os.environ["OMP_NUM_THREADS"] = "1"  # read where a job first imports numpy or torch
    die_with_parent()
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            function(*arguments, lambda value: pipe.send(("progress", value)))
        except (UserError, OSError) as error:
            pipe.send(("failed", str(error)))
        except Exception:  # a bug ends the job, and is shown
            pipe.send(("failed", traceback.format_exc()))
        else:
            pipe.send(("done", None))
