"""What is wrong with a run, as a file in its folder: for `shoal status` and `shoal watch`.

write_warnings(folder, ["nothing to learn from in 3 rounds: ..."])
read_warnings(folder)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from shoal.errors import UserError
from shoal.runs.atomic import disk_errors, write_atomically
from shoal.runs.folder import WARNINGS
from shoal.untrusted import json_safe, parse_json, read_regular

MAX_BYTES = 1 << 16
MAX_WARNINGS = 20


def write_warnings(run: Path, warnings: Sequence[str]) -> None:
    """Replaces the warnings in the folder `run`; without any there is no file. Raises `UserError`."""
    path = run / WARNINGS
    if warnings:
        write_atomically(path, json.dumps(json_safe(list(warnings))).encode())
    else:
        with disk_errors(path, "remove"):
            path.unlink(missing_ok=True)


def read_warnings(run: Path) -> list[str]:
    """The warnings in the folder `run`, which a stranger may have made. Raises `UserError`."""
    path = run / WARNINGS
    try:
        found = parse_json(read_regular(path, MAX_BYTES))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise UserError(f"{path} is not a list of warnings")
    return found[:MAX_WARNINGS]
