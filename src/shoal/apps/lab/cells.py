"""One run of a study, or several of them as one program, in the process that calls."""

from __future__ import annotations

import json
import platform
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
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
    run_together([(config, path)], lambda _, round: tell(round))


def run_together(cells: Sequence[tuple[Config, Path]], tell: Callable[[int, int], None]) -> None:
    """Runs several configurations, each in its folder; more than one as one batched program, for which they must decode
    and learn alike (`alike`). `tell` gets the number of the cell and its round."""
    from shoal.apps.lab.experiment import Experiment  # torch, only now
    from shoal.runs.run import Crew

    started = time.monotonic()
    with ExitStack() as locks:  # until all is written, or another process would take a run for unfinished
        left: list[tuple[int, Config, RunFolder]] = []
        for number, (config, path) in enumerate(cells):
            folder = _folder(config, path)
            if folder is not None:
                left.append((number, config, locks.enter_context(folder)))
        if not left:
            return
        checkpoints = [_checkpoint(folder) for _, _, folder in left]
        crews: list[Crew | None] = [None] * len(left)
        if len(left) > 1:
            crews = list(_crews([config for _, config, _ in left], checkpoints))
        with ExitStack() as stack:
            runs = []
            for (number, config, folder), checkpoint, crew in zip(left, checkpoints, crews, strict=True):
                watch = Silent(lambda round, number=number: tell(number, round))  # type: ignore[misc]
                run = Experiment(
                    config, folder, watch, checkpoint, crew=crew, verifier=_verifier(config.tasks.model_dump_json())
                )
                runs.append(stack.enter_context(closing(run)))
            _in_step(runs)
        seconds = time.monotonic() - started
        finished = locks.pop_all()
    with closing(finished):  # from here on an error discards nothing
        for _, config, folder in left:
            shutil.rmtree(folder.path / CHECKPOINTS, ignore_errors=True)
            report = {"seconds": seconds / len(left), "rounds": config.rounds, "together": len(left)}
            write_atomically(folder.path / DONE, json.dumps(report | {"versions": installed()}).encode())


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


def _in_step(runs: Sequence[Any]) -> None:
    """All runs to their ends, each step of theirs at once."""
    never = threading.Event()
    if len(runs) == 1:
        runs[0].go(never)
        return
    going = {run: run.steps(never) for run in runs}
    results: dict[Any, Any] = dict.fromkeys(runs)
    while going:
        calls: dict[Any, list[Callable[[], Any]]] = {}
        for run, steps in list(going.items()):
            try:
                calls[run] = list(steps.send(results[run]))
            except StopIteration:
                del going[run]
        flat = [call for run in going for call in calls[run]]
        found = iter(runs[0].company.together(flat) if flat else [])
        results = {run: [next(found) for _ in calls[run]] for run in going}


def _crews(configs: Sequence[Config], checkpoints: Sequence[Path | None]) -> list[Any]:
    """What the nodes of all runs answer with, as one stack."""
    from shoal.parallel.lockstep import Company
    from shoal.parallel.ranks import ALONE
    from shoal.policy.stacked import stack
    from shoal.runs.models import make_policies, place_rank
    from shoal.runs.run import Crew, node_names

    policies: list[list[Any]] = []
    for config, checkpoint in zip(configs, checkpoints, strict=True):
        models = config.policy.model
        sources = {name: models[place % len(models)] for place, name in enumerate(node_names(config))}
        placement = place_rank(config, ALONE)
        policies.append(list(make_policies(config, sources, checkpoint, placement, ALONE, lambda text: None)))
    company = Company()
    stacked = iter(stack([policy for each in policies for policy in each], company))
    return [Crew([next(stacked) for _ in each], company) for each in policies]


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
