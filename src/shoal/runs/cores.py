"""How many processor cores a run may use, and how many of them other processes leave free."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

import psutil

LOOK: Final = 0.3
"""Seconds for which the machine is watched."""


def usable_cores() -> int:
    """Cores that this process may use: those of its affinity, within the limit of its control group."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    try:
        words = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except OSError:  # another system, or another version of control groups
        words = []
    if len(words) == 2 and words[0].isdigit():  # else "max"
        cores = min(cores, max(1, round(int(words[0]) / int(words[1]))))
    return cores


def free_cores() -> int:
    """Of the cores that this process may use, about how many are free now; one at least."""
    return max(1, min(usable_cores(), round((os.cpu_count() or 1) - busy_cores())))


def busy_cores() -> float:
    """About how many of the machine's cores are busy now. Processes of low priority do not count: they step aside."""
    before = psutil.cpu_times()._asdict()
    time.sleep(LOOK)
    passed = {name: after - before[name] for name, after in psutil.cpu_times()._asdict().items()}
    worked = float(passed["user"] + passed["system"])  # user has what guests take
    rest = sum(passed.get(name, 0.0) for name in ("idle", "iowait", "nice"))
    return (os.cpu_count() or 1) * worked / max(0.01, worked + float(rest))
