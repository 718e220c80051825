"""One run of a study, in the process that calls."""

import json
import platform
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from shoal.runs.disk import write_atomically
from shoal.runs.folder import CHECKPOINTS, CONFIG, RunFolder
from shoal.runs.watcher import Watcher
from shoal_lab.config import LabConfig
from shoal_lab.provenance import SOURCES, differences

DONE: Final = "done.json"
"""A file that only the folder of a finished run has."""
PACKAGES: Final = ("shoal", "torch", "transformers", "reasoning-gym", "numpy")
"""Packages whose versions a run writes down."""


@dataclass(frozen=True)
class Silent(Watcher):
    """Watches a run and reports the number of each finished round alone."""

    on_round: Callable[[int], None]

    def update(self, rows: Sequence[Mapping[str, Any]], round: int) -> None:
        self.on_round(round)


def run_cell(config: LabConfig, path: Path, on_round: Callable[[int], None]) -> None:
    """Runs `config` in the folder `path` to its end, from its last checkpoint if it has one. A finished run stays as it
    is; one that was begun with other settings starts again."""
    from shoal.runs.run import Run
    from shoal_lab.experiment import Experiment  # imports torch

    started = time.monotonic()
    folder = _open(config, path)
    if folder is None:
        return
    with ExitStack() as unfinished:
        unfinished.enter_context(folder)  # an error discards a run without rounds
        latest = folder.latest()
        checkpoint = latest[1] if latest else None
        with closing(Experiment(config, checkpoint)) as nodes:
            Run(nodes, folder, Silent(on_round), checkpoint).go(threading.Event())
        unfinished.pop_all()
    with closing(folder):  # still locked: another process must not take the run for unfinished
        shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)
        report = {"seconds": time.monotonic() - started, "rounds": config.rounds, "versions": installed()}
        write_atomically(path / DONE, json.dumps(report).encode())


def installed() -> dict[str, str]:
    """Versions of Python and of `PACKAGES`; that of shoal ends with a hash of its sources."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found | {"shoal": f"{found.get('shoal', '')}+{SOURCES}"}


def _open(config: LabConfig, path: Path) -> RunFolder | None:
    """The folder of a run: new, or cut back to its last checkpoint. None for a finished run."""
    if (path / CONFIG).exists():
        folder = RunFolder.open(path)
        if (path / DONE).exists():  # looked for under the lock
            folder.close()
            return None
        if not differences(path, config):
            intact, _ = folder.intact()
            folder.rewind(intact[0] if intact else -1)
            return folder
        folder.close()
    shutil.rmtree(path, ignore_errors=True)
    return RunFolder.create(path, config.to_toml())
