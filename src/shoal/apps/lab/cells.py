"""One run of a study, or several of them as one program, in the process that calls."""

from __future__ import annotations

import json
import platform
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from shoal.apps.lab.provenance import SOURCES, differences
from shoal.config.policy import GUPPY
from shoal.config.settings import Config
from shoal.config.tasks import TasksConfig
from shoal.runs.atomic import write_atomically
from shoal.runs.folder import CHECKPOINTS, CONFIG, RunFolder
from shoal.sandbox.verifier import Verifier

DONE: Final = "done.json"
"""What the folder of a finished run has, and no other."""

PACKAGES: Final = ("shoal", "torch", "transformers", "reasoning-gym", "numpy")
"""Those whose versions a run tells."""

IDLE: Final = frozenset({"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"})
"""What in the config.json of a model changes nothing of what it computes (as `policy.layers.NAMES`, without torch)."""

Tell = Callable[[int], None]
"""Is told of every round that is done."""


@dataclass(frozen=True)
class Silent:
    """Watches a run and tells of its rounds alone."""

    tell: Tell

    def status(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def update(self, rows: Sequence[Mapping[str, Any]], round: int) -> None:
        self.tell(round)


def run_cell(config: Config, path: Path, tell: Tell) -> None:
    """Runs `config` in the folder `path` to its end; where it was killed before, from its last checkpoint. A run that
    is finished stays as it is."""
    from shoal.apps.lab.experiment import Experiment  # torch, only now

    started = time.monotonic()
    folder = _folder(config, path)
    if folder is None:
        return
    with closing(folder):
        verifier = _verifier(config.tasks.model_dump_json())
        with closing(Experiment(config, folder, Silent(tell), _checkpoint(folder), verifier=verifier)) as run:
            run.go(threading.Event())
        shutil.rmtree(folder.path / CHECKPOINTS, ignore_errors=True)
        report = {"seconds": time.monotonic() - started, "rounds": config.rounds, "versions": installed()}
        write_atomically(folder.path / DONE, json.dumps(report).encode())


def run_together(cells: Sequence[tuple[Config, Path]], tell: Callable[[int, int], None]) -> None:
    """Runs several configurations, each in its folder. `tell` gets the number of the cell and its round."""
    for number, (config, path) in enumerate(cells):
        run_cell(config, path, lambda round, number=number: tell(number, round))  # type: ignore[misc]


@cache
def _verifier(tasks: str) -> Verifier:
    """One for all runs of this process with the same tasks (JSON): its start takes as long as fifteen rounds. It ends
    with the process."""
    return Verifier(TasksConfig.model_validate_json(tasks))


def alike(configs: Sequence[Config]) -> list[list[int]]:
    """Which of them can be one program: those that decode and learn by the same settings, with one architecture. A run
    whose own nodes have several is alone."""
    groups: dict[str, list[int]] = defaultdict(list)
    for number, config in enumerate(configs):
        policy = config.policy.model_dump(mode="json") | {"model": None, "num_generations": None}
        learner = config.learner.model_dump(mode="json") | {"learning_rate": None}
        kinds = sorted({_architecture(model) for model in config.policy.model})
        alone = number if len(kinds) > 1 else None
        groups[json.dumps([policy, learner, kinds, alone], sort_keys=True)].append(number)
    return list(groups.values())


def _architecture(model: str) -> str:
    """What is alike for models that can be stacked, as far as can be told without loading them: the config.json of a
    folder; of others the name."""
    file = (Path(__file__).parents[2] / GUPPY if model == GUPPY else Path(model).expanduser()) / "config.json"
    if not file.is_file():
        return model
    config: dict[str, Any] = json.loads(file.read_bytes())
    return json.dumps({key: value for key, value in config.items() if key not in IDLE}, sort_keys=True)


def installed() -> dict[str, str]:
    """Versions of what is used here; that of shoal with a hash of its sources."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found | {"shoal": f"{found.get('shoal', '')}+{SOURCES}"}


def _folder(config: Config, path: Path) -> RunFolder | None:
    """The folder of a run: new, or with all of a killed one up to its last checkpoint. None for a finished one. One
    that was killed with other settings begins anew."""
    if (path / CONFIG).exists():
        folder = RunFolder.open(path)
        if (path / DONE).exists():  # seen only now that no other process can be at it
            folder.close()
            return None
        if not differences(path, config):
            return _rewound(folder)
        folder.close()
    shutil.rmtree(path, ignore_errors=True)
    return RunFolder.create(path, config.to_toml())


def _rewound(folder: RunFolder) -> RunFolder:
    latest = folder.latest()
    folder.rewind(latest[0] if latest else -1)
    return folder


def _checkpoint(folder: RunFolder) -> Path | None:
    latest = folder.latest()
    return latest[1] if latest else None
