"""What a data set's task is made of: the parameters of the task `data`, the presets in presets.toml, and rows that a
program has in memory.

    spec = data_spec({"path": "gsm8k"})
    spec.path, spec.prompt          # ("openai/gsm8k", "question")
    parameters_of([{"prompt": "2 + 2 =", "answer": "4"}])       # {"path": ".../own-1f2e.jsonl", "name": "data"}
"""

import hashlib
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from shoal.answers import SCORES
from shoal.config.answer_form import check_form
from shoal.config.caches import cache_folder
from shoal.config.own_code import offered
from shoal.errors import UserError, nearest
from shoal.tasks.data.scores import GROUP
from shoal.untrusted import printable

ENDING: Final = (
    r"(?i)\.(csv|tsv|txt|xls[xmb]?|ods|jsonl?|ndjson|parquet|arrow|feather)(\.(gz|zst))?$"  # of a file's name
)
HASH: Final = "hash"
NONE: Final = "none"
PRESETS: Final[dict[str, dict[str, str]]] = tomllib.loads(
    (files("shoal.tasks.data") / "presets.toml").read_text("utf-8")
)


class DataSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a data set. All but `path` can be left out."""

    path: str
    """A file (CSV, Excel, JSON, parquet, Arrow), a folder, a name on the Hub, or a preset."""
    name: str = ""
    """What figures and peers call it; by default the file's or the data set's name without its ending."""
    subset: str = ""
    """The configuration of a data set on the Hub that has several; the sheet of a workbook."""
    revision: str = ""
    """The version of a data set on the Hub: a branch, a tag or a commit."""
    split: str = ""
    """The split to train on; by default train, or the only one. none: nothing is trained on."""
    held_out: str = "auto"
    """What is held out: a split, a file, or hash (a fifth, by a hash of the text). auto: the split test or validation
    if there is one, otherwise hash."""
    prompt: str = ""
    """The column of the questions, as text or as chat messages; by default the usual names are looked for."""
    context: str = ""
    """The column of a text that stands before the question; by default the usual names are looked for."""
    answer: str = ""
    """The column of the right answers; by default the usual names are looked for. A name with a dot is a field in a
    column. A list has several right answers."""
    gold: str = "auto"
    """Where in that column the right answer stands: the forms of `TaskSpec.answer`, such as boxed or "#### (.+)". auto:
    behind ####, in a box or in tags where there are any, otherwise all of it."""
    decimal: Literal["auto", "point", "comma"] = "auto"
    """What stands before decimals. auto: a comma where semicolons separate columns and answers have one."""
    conflicts: Literal["leave_out", "both_right"] = "leave_out"
    """What becomes of rows with the same question and different right answers."""
    score: str = "auto"
    """text: the same text, whatever its case. exact: the same text. number: the same number. choice: the same option.
    math: equal by math-verify. code: a program that passes the row's tests, in HumanEval's columns or MBPP's. auto:
    code if there are such columns, otherwise what the right answers are. Packages add kinds such as code."""


def data_spec(parameters: Mapping[str, Any]) -> DataSpec:
    """The parameters of a data set, with those of its preset below them. Raises `UserError`."""
    known = [field.name for field in msgspec.structs.fields(DataSpec)]
    for name in parameters:
        if name not in known:
            raise UserError(f"a data set has no parameter {name!r}; {nearest(name, known)}")
    given = parameters.get("score", "auto")
    if given not in (kinds := ("auto", *SCORES, *offered(GROUP))):
        raise UserError(f"a data set has no score {given!r}; {nearest(str(given), kinds)}")
    try:
        preset = preset_of(parameters.get("path"))
        path = {"path": preset["path"]} if preset else {}  # in place of its short name
        spec = msgspec.convert({**preset, **parameters, **path}, DataSpec, strict=False)
        if spec.gold != "auto":
            check_form(spec.gold)
    except (msgspec.ValidationError, ValueError) as error:
        raise UserError(f"parameters of a data set: {error}") from error
    except OSError as error:  # a name that no file can have
        raise UserError(f"path of a data set: {error.strerror}") from error
    if not spec.path:
        raise UserError("a data set needs a path: a file, a folder or a name on the Hub")
    return msgspec.structs.replace(spec, name=label(spec))


def preset_of(path: object) -> dict[str, str]:
    """The preset with this short name or name on the Hub; nothing if there is none, or if there is such a file."""
    if not isinstance(path, str) or Path(path).exists():
        return {}
    by_hub = {preset["path"]: preset for preset in PRESETS.values()}
    return PRESETS.get(path) or by_hub.get(path) or {}


def label(spec: DataSpec) -> str:
    """The name of a data set. Raises `UserError` for one that cannot be shown in a figure."""
    if not spec.name:
        last = Path(spec.path).name
        return re.sub(r"[^\w.-]+", "-", re.sub(ENDING, "", last), flags=re.ASCII)[:64].strip("-.") or "data"
    if not re.fullmatch(r"[\w.-]{1,64}", spec.name, re.ASCII):
        raise UserError(f"the data set's name {spec.name!r} may have letters, digits, '_', '.' and '-', at most 64")
    return spec.name


def parameters_of(data: Any) -> Any:
    """The parameters of a data set that is in memory: a list of rows, a `datasets.Dataset`, or a `DatasetDict`, whose
    splits it keeps. Anything else as it is. Raises `UserError` for rows that cannot be kept."""
    library = sys.modules.get("datasets")
    is_list = isinstance(data, list) and all(isinstance(row, dict) for row in data)
    if is_list or (library and isinstance(data, library.Dataset)):
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
    lines: list[bytes] = []
    try:
        lines.extend(msgspec.json.encode(row) + b"\n" for row in rows)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UserError(
            f"row {len(lines) + 1} of the data cannot be kept as JSON ({printable(str(error), 120)}): save the data as "
            "parquet and give the file"
        ) from error
    data = b"".join(lines)
    path = cache_folder("data") / f"own-{hashlib.blake2b(data, digest_size=16).hexdigest()}.jsonl"
    part = path.with_name(f".own-{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise UserError(f"cannot keep the data in {path.parent}: {error.strerror or error}") from error
    return path
