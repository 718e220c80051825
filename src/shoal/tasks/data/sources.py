"""Where the rows of a data set come from: one file, a folder, or a name on the Hub.

train, held_out = sides_of(data_spec({"path": "questions.jsonl"}))
list(train.rows())              # [(1, {"prompt": "2 + 2 =", "answer": "4"}), ...]
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec

from shoal.errors import UserError, in_brief
from shoal.inside import card_files, check_inside
from shoal.tasks.data.files import BATCH, File, Numbered, ending_of, read_file, rows_of
from shoal.tasks.data.spec import HASH, NONE, DataSpec
from shoal.untrusted import parse_json, printable, read_regular

OWN_SPLITS: Final = ("test", "validation")
"""Splits that are held out where nothing is said, the first that there is."""
PATIENCE: Final = 3.0
"""Seconds that the Hub has to answer."""
MOST_FILES: Final = 100_000
"""Of a folder."""
MOST_STATE: Final = 1 << 20
"""Bytes of the list of files that `save_to_disk` writes."""


def sides_of(spec: DataSpec) -> tuple[File | None, File | None]:
    """What to train on and what to hold out; None for the latter if a hash decides. Raises `UserError`."""
    splits = _splits(spec)
    train = None if spec.split == NONE else _chosen(splits, spec)
    if spec.held_out == HASH:
        held_out = None
    elif spec.held_out == "auto":
        held_out = next((splits[name] for name in OWN_SPLITS if name in splits and splits[name] != train), None)
    elif spec.held_out in splits:
        held_out = splits[spec.held_out]
    elif is_place(spec.held_out):
        held_out, _ = sides_of(msgspec.structs.replace(spec, path=spec.held_out, split="", held_out=HASH))
    else:
        has = ", ".join(splits) if len(splits) > 1 or "" not in splits else "no splits"
        raise UserError(f"{spec.path} has no split {spec.held_out!r} to hold out; it has {has}")
    if train is None and held_out is None:
        raise UserError(f"{spec.path}: with split = {NONE!r} say what is held out")
    same = is_place(spec.held_out) and Path(spec.held_out).absolute() == Path(spec.path).absolute()
    if train is not None and (train == held_out or same):
        raise UserError(f"{spec.path}: the same rows are trained on and held out; leave out held_out, or say 'hash'")
    return train, held_out


def is_place(text: str) -> bool:
    """Whether `text` names a file, a folder or a data set on the Hub, and not a split."""
    return "/" in text or bool(ending_of(Path(text)))


def state_of(path: str) -> list[tuple[str, int, int]]:
    """The name, the size and the time of change of a file, or of all files in a folder; empty for a name on the Hub."""
    place = Path(path)
    if place.is_dir():
        files = [file for file, _ in zip(sorted(place.rglob("*")), range(MOST_FILES), strict=False) if file.is_file()]
    else:
        files = [place] if place.exists() else []
    return [(str(file.absolute()), stat.st_size, stat.st_mtime_ns) for file in files if (stat := file.stat())]


def _chosen(splits: Mapping[str, File], spec: DataSpec) -> File:
    """The split to train on."""
    name = spec.split or (next(iter(splits)) if len(splits) == 1 else "train")
    if name in splits:
        return splits[name]
    if "" in splits:
        raise UserError(f"{spec.path} is one file, without splits: leave out split = {spec.split!r}")
    raise UserError(f"{spec.path} has no split {name!r}; it has {', '.join(splits)}: say split = NAME")


def _splits(spec: DataSpec) -> dict[str, File]:
    """The parts of a data set by the names of their splits; a file is one part without a name."""
    path = Path(spec.path)
    if path.is_dir():
        check_inside(path)
        if found := _of_folder(path / spec.subset):
            return found
    if path.is_dir() or not (path.exists() or ending_of(path)):
        return _of_datasets(spec)
    found = read_file(path, spec.subset)
    return {name: replace(file, name=f"{path.name} ({name})" if name else path.name) for name, file in found.items()}


def _of_folder(path: Path) -> dict[str, File]:
    """The splits of a folder of files, by their names as Hugging Face's library has it; none if `save_to_disk` wrote
    it, if a card says what its files are, or if there are no files of data."""
    card = path / "README.md"
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")) or (
        card.is_file() and "data_files:" in card.read_text("utf-8", "replace")
    ):
        return {}
    parts: dict[str, list[Path]] = {}
    for file, _ in zip(sorted(path.rglob("*")), range(MOST_FILES), strict=False):
        inner = str(file.relative_to(path)).lower()
        if file.is_file() and ending_of(file) and not re.search(r"(^|/)\.|(^|/)dataset_infos?\.json$", inner):
            split = re.search(r"(?:^|[^a-z])(train|test|validation|valid|val|dev)(?:[^a-z]|$)", inner)
            name = split[1] if split else "train"
            parts.setdefault(name if name in ("train", "test") else "validation", []).append(file)
    return {name: _joined(files) for name, files in parts.items()}


def _joined(paths: Sequence[Path]) -> File:
    """The rows of several files, one after the other, with numbers that go on."""
    read = [(path.name, file) for path in paths for file in read_file(path).values()]
    if len(read) == 1:
        return replace(read[0][1], name=read[0][0])
    before: list[int] = []
    """How many numbers the files before each one have, as far as they are read."""

    def rows() -> Numbered:
        before.clear()
        last = 0
        for _, file in read:
            before.append(last)
            for number, row in file.rows():
                last = before[-1] + number
                yield last, row

    def place(number: int) -> str:
        at = bisect_left(before, number) - 1
        return f"row {number - before[at]} of {read[at][0]}"

    return replace(read[0][1], rows=rows, name=f"{paths[0].name} to {paths[-1].name}", places=place)


def _of_datasets(spec: DataSpec) -> dict[str, File]:
    """The splits of a folder or of a data set on the Hub, as `datasets` reads them. It runs no code of theirs."""
    path = Path(spec.path)
    if path.is_dir():
        check_inside(path, _named_files(path))
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{spec.path} is no file of data here; folders and names on the Hub need pip install 'shoal[data]'"
        ) from error
    away = not path.is_dir() and not _reached(spec.path)
    try:
        if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
            found = datasets.load_from_disk(spec.path)
        else:
            revision = {} if path.is_dir() else {"revision": spec.revision or None}
            with patch.object(datasets.config, "HF_HUB_OFFLINE", away or datasets.config.HF_HUB_OFFLINE):
                found = datasets.load_dataset(spec.path, spec.subset or None, **revision)  # or from its cache
    except Exception as error:  # of the Hub, of the network, of the parsers of its files
        what = "cannot be read" if path.is_dir() else "is no file here, and cannot be read from the Hub"
        why = "it cannot be reached: check the name and the network" if away else " ".join(str(error).split())
        raise UserError(f"{spec.path} {what}: {printable(why, 300)}") from error
    splits = found if isinstance(found, datasets.DatasetDict) else {"train": found}
    return {
        str(name): File(partial(_of_split, split.with_format("arrow")), name=f"{spec.path} ({name})")
        for name, split in splits.items()
    }


def _reached(name: str) -> bool:
    """Whether the Hub answers. Without a network `datasets` tries for half a minute or longer."""
    import httpx2  # half a second, with the next
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().dataset_info(name, timeout=PATIENCE)
    except (httpx2.TransportError, HfHubHTTPError, OSError, ValueError) as error:  # `datasets` says what is refused
        return not isinstance(error, httpx2.TransportError)
    return True


def _named_files(path: Path) -> Iterator[str]:
    """The files that a folder's card, and the lists of `save_to_disk`, name: from that folder on."""
    if (card := path / "README.md").is_file():
        yield from card_files(card)
    for file in path.rglob("state.json"):
        try:
            for entry in parse_json(read_regular(file, MOST_STATE))["_data_files"]:
                yield str(file.parent.relative_to(path) / entry["filename"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file} cannot be read: {in_brief(error)}") from error


def _of_split(split: Any) -> Numbered:
    return enumerate(rows_of(split.iter(BATCH)), 1)
