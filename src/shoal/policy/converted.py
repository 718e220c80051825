"""Keeps the models of GGUF files as folders in the cache: transformers reads such a file in half a minute, and a folder
in half a second.

    with converting(path) as folder:            # one process at a time; None: nothing can be kept
        if folder and is_whole(folder): ...     # load it like any other model's folder
        else: keep(model, tokenizer, folder)

A folder's name is the SHA-256 of the file, and the versions of what reads it. It is there in whole or not at all, and
is made again if its files are not as they were written. Those that were used last are kept.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError

from shoal.config.caches import alone, cache_folder
from shoal.config.manifest import FILES, damage, write_manifest
from shoal.errors import UserError, in_brief, say_once
from shoal.policy.fetch import sha256_of

FORMAT: Final = 1
"""Of what shoal itself takes from a file. It grows with a change of `policy.loading` or `policy.gguf_facts`."""
LEAST: Final = 2**24
"""Bytes of a file from which keeping its model pays."""
MOST: Final = 4
"""Models that are kept."""
MOST_BYTES: Final = 2**33
"""What they take together. A model that takes more than half of it is not kept."""


@contextmanager
def converting(path: Path) -> Iterator[Path | None]:
    """Where the model of the GGUF file `path` is kept, whether it is there or not."""
    with ExitStack() as held:
        folder = None
        with suppress(OSError, UserError):  # there is no cache, or nobody may write there
            if (state := path.stat()).st_size >= LEAST:
                readers = "-".join([str(FORMAT), *map(version, ("transformers", "tokenizers", "gguf"))])
                room = cache_folder("converted")
                room.mkdir(parents=True, exist_ok=True)
                held.enter_context(
                    alone(room / ".lock", "another shoal converts its model, in half a minute or more: waiting for it")
                )
                folder = room / f"{sha256_of(path, state.st_mtime_ns, state.st_size)}-{readers}"
        yield folder


def is_whole(folder: Path) -> bool:
    """Whether a model is kept there, as it was written."""
    whole = (folder / FILES).is_file() and not damage(folder)
    if whole:
        with suppress(OSError):
            os.utime(folder)
    return whole


def keep(model: Any, tokenizer: Any, folder: Path) -> None:
    """Keeps a model in `folder` if there is room for it, and drops those that were used longest ago."""
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    room = folder.with_name(".part")
    try:
        shutil.rmtree(room, ignore_errors=True)  # of a process that was killed
        shutil.rmtree(folder, ignore_errors=True)  # damaged
        if 2 * size > min(MOST_BYTES, shutil.disk_usage(folder.parent).free):
            return
        others = [path for path in folder.parent.iterdir() if path.is_dir()]
        for place, path in enumerate(sorted(others, key=lambda path: path.stat().st_mtime, reverse=True), 1):
            size += sum(file.stat().st_size for file in path.iterdir())
            if place >= MOST or size > MOST_BYTES:
                shutil.rmtree(path, ignore_errors=True)  # a process that has it open keeps it
        room.mkdir()
        model.save_pretrained(room)
        tokenizer.save_pretrained(room)
        write_manifest(room)
        room.rename(folder)
    except (OSError, SafetensorError, ValueError) as error:  # a full disk, or settings that cannot be saved
        say_once(f"the converted model is not kept in {folder.parent}: {in_brief(error)}")
    finally:
        shutil.rmtree(room, ignore_errors=True)
