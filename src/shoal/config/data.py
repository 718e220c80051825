"""How a data set is said in one word, as `--data` and `shoal.run(data=...)` have it.

    data_settings("questions.jsonl,score=number")
    # {"name": "data", "parameters": {"path": "questions.jsonl", "score": "number"}}

What the parameters are, `shoal.tasks.data.spec` says; a file has them in `[[tasks.sources]]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shoal.errors import UserError

DATA: Final = "data"
"""The name of the task that a data set is."""


def data_settings(value: object) -> dict[str, Any]:
    """The task of a data set. `value`: its path or name, with NAME=VALUE behind commas; or its parameters. Raises
    `UserError`."""
    match value:
        case str() if value.startswith("verifiers:"):
            raise UserError(f"{value} is a taskset, which is code and has rewards of its own: give it as --task")
        case str() | Path():
            path, *rest = re.split(r"\s*,\s*(?=\w+\s*=)", str(value))
            return {
                "name": DATA,
                "parameters": {"path": path, **dict(re.split(r"\s*=\s*", p, maxsplit=1) for p in rest)},
            }
        case Mapping():
            return {"name": DATA, "parameters": dict(value)}
    raise UserError(f"data = {type(value).__name__}: give a path, a name on the Hub, rows or a datasets.Dataset")
