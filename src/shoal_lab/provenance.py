"""What made a run: its code, and its settings beside those of its study now."""

import hashlib
from functools import reduce
from pathlib import Path
from typing import Any, Final

from shoal.config.load import read_config
from shoal.config.sections import settings_of
from shoal.errors import UserError
from shoal.runs.folder import CONFIG
from shoal_lab.config import LabConfig, make_lab_config
from shoal_lab.recipes import BASE

BASES: Final = "bases"
"""The folder of a study's own models, in the folder of the study."""


def _hash_of_sources() -> str:
    room = Path(__file__).parents[1]
    found = hashlib.blake2b(digest_size=4)
    for path in sorted(room.glob("shoal*/**/*.py")):
        found.update(f"{path.relative_to(room).as_posix()}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()


SOURCES: Final = _hash_of_sources()
"""BLAKE2b, 4 bytes, over the path, the size and the bytes of each .py file of shoal's packages, in order of path, when
the process started. It knows no commit: the same files give the same hash, installed or in a checkout."""


def differences(path: Path, config: LabConfig) -> list[str]:
    """The settings of the run in `path` that differ from `config`, a line for each. Settings that its config.toml lacks
    have their defaults. What changes no result does not matter: the place of the study's own models and of nodes,
    checkpoints, and `[network]`, which no run of a study reaches."""
    try:
        was = make_lab_config(read_config(path / CONFIG), str(path / CONFIG)).resolved()  # nothing is run
    except UserError as error:
        return [str(error)]
    before, now = _plain(was), _plain(config.resolved())
    return [f"{name} was {before[name]!r}, and is {now[name]!r}" for name in now if before[name] != now[name]]


def _plain(config: LabConfig) -> dict[str, Any]:
    """Every setting by its dotted name; models that the study made by their names."""
    config = config.model_copy(deep=True)
    config.policy.model = [_base(model) for model in config.policy.model]
    nested = config.model_dump(mode="json")
    without = ("network.", "checkpoint_every", "round.on", "round.gpus", "round.memory")
    names = [name for name, _ in settings_of(LabConfig) if not name.startswith(without)]
    return {name: reduce(lambda section, part: section[part], name.split("."), nested) for name in names}


def _base(model: str) -> str:
    """`base:NAME` for the folder of a model that a study made, since that folder can be moved."""
    path = Path(model)
    return BASE + path.name if path.is_absolute() and path.parent.name == BASES else model
