"""Rows that a program has in memory, kept as a file of the cache, so that other processes and a resumed run find them.

parameters_of([{"prompt": "2 + 2 =", "answer": "4"}])       # {"path": ".../own-1f2e.jsonl", "name": "data"}
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from shoal.config.caches import cache_folder
from shoal.errors import UserError
from shoal.untrusted import printable


def parameters_of(data: Any) -> Any:
    """The parameters of a data set that is in memory: a list of rows, a `datasets.Dataset`, or a `DatasetDict`, whose
    splits it keeps. Anything else as it is. Raises `UserError` for rows that cannot be kept."""
    if isinstance(data, list) and all(isinstance(row, dict) for row in data):
        return {"path": str(kept(data)), "name": "data"}
    library = sys.modules.get("datasets")
    if library and isinstance(data, library.Dataset):
        return {"path": str(kept(data)), "name": "data"}
    if library and isinstance(data, library.DatasetDict):
        if "train" not in data:
            raise UserError(f"the data has no split 'train' (it has {', '.join(data)}): give the split to train on")
        held_out = next((str(kept(data[name])) for name in ("test", "validation") if name in data), "hash")
        return {"path": str(kept(data["train"])), "held_out": held_out, "name": "data"}
    return data


def keep_data(settings: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments, with data in memory kept as a file. Raises `UserError` for rows that cannot be kept."""
    return settings | {"data": parameters_of(settings["data"])} if "data" in settings else settings


def kept(rows: Iterable[Any]) -> Path:
    """A file with these rows. The same rows have the same file."""
    folder = cache_folder("data")
    room = folder / f".own-{os.getpid()}.part"
    digest, number = hashlib.blake2b(digest_size=16), 1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with room.open("wb") as file:
            for row in rows:
                line = msgspec.json.encode(row) + b"\n"
                digest.update(line)
                file.write(line)
                number += 1
        path = folder / f"own-{digest.hexdigest()}.jsonl"
        if not path.exists():
            os.replace(room, path)
        return path
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UserError(
            f"row {number} of the data cannot be kept as JSON ({printable(str(error), 120)}): save the data as parquet "
            "and give the file"
        ) from error
    except OSError as error:
        raise UserError(f"cannot keep the data in {folder}: {error.strerror or error}") from error
    finally:
        room.unlink(missing_ok=True)
