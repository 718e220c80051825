"""A study on a Ray cluster (`shoal[ray]`): each run is a task of Ray, and its folder comes back as bytes.

The machines need shoal and share no disk; models that the study made travel with the task.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.apps.lab.cells import DONE, run_cell
from shoal.apps.lab.config import LabConfig
from shoal.apps.lab.processes import Event
from shoal.apps.lab.provenance import BASES
from shoal.config.rewards import specs_with_models
from shoal.errors import UserError

Files = dict[str, bytes]


def run_on_ray(address: str, cells: Sequence[tuple[LabConfig, Path]], bases: Path) -> Generator[Event, None, None]:
    """Runs all `cells` as tasks of the cluster at `address` ("auto": this machine's cluster; "local": a new one of this
    machine alone). `bases`: the folder of models that the study made."""
    try:
        import ray
    except ImportError as error:
        raise UserError("--ray needs Ray: pip install 'shoal[ray]'") from error
    ray.init(address=address, log_to_driver=False, include_dashboard=None if address != "local" else False)
    try:
        models: Any = ray.put({path.name: read_folder(path) for path in bases.iterdir()} if bases.exists() else {})
        task = ray.remote(num_cpus=1, max_retries=2)(_remote)
        waiting = {
            task.remote(config, str(bases.absolute()), models): number for number, (config, _) in enumerate(cells)
        }
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            number = waiting.pop(done)
            try:
                write_folder(cells[number][1], ray.get(done))
            except (ray.exceptions.RayError, UserError) as error:
                yield Event(number, "failed", str(error))
            else:
                yield Event(number, "progress", cells[number][0].rounds)
                yield Event(number, "done")
    finally:
        ray.shutdown()


def _remote(config: LabConfig, bases: str, models: Mapping[str, Files]) -> Files:
    """Does one run on another machine; returns its folder as bytes."""
    with tempfile.TemporaryDirectory() as room:

        def here(model: str) -> str:
            path = Path(model)
            if str(path.parent) != bases or path.name not in models:
                return model
            write_folder(Path(room) / BASES / path.name, models[path.name])
            return str(Path(room) / BASES / path.name)

        config = config.model_copy(deep=True)
        config.policy.model = [here(model) for model in config.policy.model]
        for spec in specs_with_models(config.rewards):
            spec.model = here(spec.model)
        run_cell(config, Path(room) / "run", lambda round: None)
        return read_folder(Path(room) / "run")


def read_folder(folder: Path) -> Files:
    """All files in `folder`, by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_folder(folder: Path, files: Files) -> None:
    """Writes what `read_folder` read; `done.json` last."""
    for name in sorted(files, key=lambda name: name == DONE):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
