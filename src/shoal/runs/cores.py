"""How many processor cores a run may use, and how many of them other processes leave free."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

LOOK: Final = 0.3
"""Seconds for which the machine is watched."""


def usable_cores() -> int:
    """Cores that this process may use: those of its affinity, within the limit of its control group."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    words = _read("/sys/fs/cgroup/cpu.max").split()
    if len(words) == 2 and words[0].isdigit():  # else "max"
        cores = min(cores, max(1, round(int(words[0]) / int(words[1]))))
    return cores


def free_cores() -> int:
    """Of the cores that this process may use, about how many are free now; one at least."""
    return max(1, min(usable_cores(), round((os.cpu_count() or 1) - busy_cores())))


def busy_cores() -> float:
    """About how many of the machine's cores are busy now. Processes of low priority do not count: they step aside."""
    before = _ticks()
    if before:
        time.sleep(LOOK)
        worked, idle = (after - then for after, then in zip(_ticks(), before, strict=True))
        return (os.cpu_count() or 1) * worked / max(1, worked + idle)
    return 0.0 if sys.platform == "win32" else os.getloadavg()[0]


def _ticks() -> tuple[int, int]:
    """Time that all cores have worked, and the rest, since the machine started; () where the system does not say."""
    words = _read("/proc/stat").partition("\n")[0].split()
    if not words:
        return ()  # type: ignore[return-value]
    user, nice, system, idle, waiting = map(int, words[1:6])
    return user + system, idle + waiting + nice


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:  # another system
        return ""
