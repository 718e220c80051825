"""A run is a folder, which other tools read as it is.

    config.toml               every setting; `--resume` goes on with it
    metrics.jsonl             a line for each node and round (round 0: the evaluation before any training)
    rollouts.parquet/         a row for each completion
    learned.parquet/          a row for each rollout that a node learned from: who learned from whom
    transcripts.parquet/      a row for each answer to the same few held-out questions, before, during and after
    warnings.json             what is wrong, in plain words
    trackers/                 what belongs to --report-to: the id of each tracker's run, and files of local trackers
    checkpoints/round-000012/ all that the run needs to go on; the last two are kept

A folder is consistent after a kill at any instant: all that belongs to a checkpoint is on disk before the checkpoint
gets its name, and `rewind` drops what is newer. A failed write raises a `UserError` that names the file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec

from shoal.config.manifest import damage, write_manifest
from shoal.errors import UserError
from shoal.runs.disk import (
    DISK_FULL,
    LOCK,
    disk_errors,
    give_usual_rights,
    is_full,
    locked,
    open_own,
    reason,
    sync,
    write_atomically,
)
from shoal.untrusted import UNDECODABLE, json_safe, open_regular, parse_json, printable, read_regular

Row = Mapping[str, Any]

CONFIG, METRICS, CHECKPOINTS = "config.toml", "metrics.jsonl", "checkpoints"
WARNINGS = "warnings.json"
"""What is wrong with the run: `write_warnings`."""
STATUS = "swarm.json"
"""The state of a joined node's swarm: see `runs.swarm_status`."""
TRACKERS = "trackers"
"""What belongs to trackers: see `runs.trackers`."""
MAX_METRICS_BYTES = 1 << 30
MAX_LINE_BYTES = 1 << 20
"""Of the metrics."""
MAX_WARNINGS, MAX_WARNINGS_BYTES = 20, 1 << 16
TEXT_METRICS = frozenset({"node", "eval/by"})
"""The metrics that are texts. All others are numbers."""


class RunFolder:
    """The folder of one run, held by one process. `create` or `open` makes it; `close` or `with` ends it."""

    def __init__(self, path: Path, lock: BinaryIO, made: Sequence[Path] | None = None) -> None:
        self.path = path
        self._lock = lock
        self._made = made  # the folders that `create` made, innermost first
        from shoal.runs.tables import TABLES, Table  # pyarrow, which readers do not need

        self.tables = {name: Table(path / name, schema) for name, schema in TABLES.items()}

    @classmethod
    def create(cls, path: Path, config_toml: str) -> RunFolder:
        """A new run in `path`, which must not exist or be empty. An error leaves nothing behind."""
        _check_free(path)
        made: list[Path] = []
        try:
            with disk_errors(path):
                made += (folder for folder in (path, *path.parents) if not folder.exists())
                path.mkdir(parents=True, exist_ok=True)
            lock = locked(path)
        except BaseException:
            _remove_empty(made)
            raise
        try:
            _check_free(path)  # another process may have been faster
            write_atomically(path / CONFIG, json_safe(config_toml).encode())
        except BaseException:
            (path / LOCK).unlink()
            lock.close()
            _remove_empty(made)
            raise
        return cls(path, lock, made)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The run in `path`, to go on with: call `intact` and `rewind` next."""
        if not (path / CONFIG).is_file():
            raise UserError(f"{path} is not the folder of a run (it has no {CONFIG}): nothing to resume")
        return cls(path, locked(path, TRACKERS))  # wandb links to its last run

    def close(self) -> None:
        """Lets another process have the folder."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """An error before the first round of a new run leaves nothing behind: there is nothing to resume or to read."""
        if kind is not None and self._made is not None and self.latest() is None and not self.rounds:
            for entry in self.path.iterdir():
                with contextlib.suppress(OSError):  # it would hide the first error
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            _remove_empty(self._made)
        self.close()

    def log(self, rows: Sequence[Row]) -> None:
        """Appends rows to the metrics. Numbers that JSON does not have (NaN, infinities) become null."""
        path = self.path / METRICS
        with disk_errors(path), open_own(path, os.O_WRONLY | os.O_APPEND) as file:
            file.write(_json_lines(rows))

    @property
    def rounds(self) -> int:
        """Rounds logged so far."""
        return max((row["round"] for row in read_metrics(self.path)), default=0)

    def save(self, table: str, round: int, rows: Sequence[Row]) -> None:
        """Keeps rows of `round` for one of `TABLES` in memory, until the next `checkpoint` or `flush` writes them."""
        self.tables[table].add(round, rows)

    def flush(self) -> None:
        """Writes what `save` took."""
        for table in self.tables.values():
            with disk_errors(table.folder):
                table.write()

    def checkpoint(self, round: int, save: Callable[[Path], None]) -> None:
        """Keeps the state after `round`, which `save` writes into the folder it gets, and the checkpoint before it.

        The one before that is dropped first, so that the disk never holds more than two. A round that has a checkpoint
        already keeps it. If `save` fails, the previous checkpoint stays.
        """
        room = self.path / CHECKPOINTS
        target, temporary = room / f"round-{round:06d}", room / f".round-{round:06d}.tmp"
        try:
            for table in self.tables.values():
                table.write()
            if (self.path / METRICS).exists():
                sync(self.path / METRICS)
            room.mkdir(exist_ok=True)
            self._sweep()
            if not target.exists():
                self._drop([path for _, path in sorted(checkpoints(self.path))[:-1]])
                temporary.mkdir()
                save(temporary)
                write_manifest(temporary)
                for path in (*temporary.rglob("*"), temporary):
                    give_usual_rights(path)
                    sync(path)
                temporary.rename(target)
                sync(room)
                sync(self.path)
        except Exception as error:
            # torch's own error does not say that the disk is full
            full = is_full(error) or shutil.disk_usage(self.path).free < 1 << 20
            if not full and not isinstance(error, OSError | UserError):
                raise
            cause = DISK_FULL if full else reason(error)
            raise UserError(f"cannot write {target}: {cause}; {self._advice(full)}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def latest(self) -> tuple[int, Path] | None:
        """The newest complete checkpoint: its round and folder."""
        return max(checkpoints(self.path), default=None)

    def intact(self) -> tuple[tuple[int, Path] | None, list[str]]:
        """The newest checkpoint whose files are as they were written, and what is wrong with newer ones. Raises
        `UserError` if there are checkpoints and all are damaged."""
        faults: list[str] = []
        for round, path in sorted(checkpoints(self.path), reverse=True):
            if not (fault := damage(path)):
                return (round, path), [f"{each}: going on after round {round}" for each in faults]
            faults.append(f"the checkpoint {path} is damaged ({fault})")
        if faults:
            raise UserError(f"{'; '.join(faults)}: there is no other, so start a new run, or bring back its files")
        return None, []

    def rewind(self, round: int) -> list[str]:
        """Drops metrics, rows and checkpoints of later rounds, and half-written files. Returns what was lost before."""
        with disk_errors(self.path):
            self._drop([path for later, path in checkpoints(self.path) if later > round])
        rows = read_metrics(self.path)
        self.rewrite_metrics([row for row in rows if row["round"] <= round])
        lost = [] if self.rounds >= round else [f"{self.path / METRICS} lacks rounds before the checkpoint"]
        return lost + [fault for table in self.tables.values() for fault in table.rewind(round)]

    def rewrite_metrics(self, rows: Sequence[Row]) -> None:
        """Replaces all metrics by `rows`."""
        write_atomically(self.path / METRICS, _json_lines(rows))

    def _drop(self, folders: Iterable[Path]) -> None:
        """Removes checkpoints, and what a killed process left."""
        for path in folders:
            # hidden first, so that a folder named as a checkpoint is complete even if a kill comes now
            path.rename(path.with_name(f".{path.name}.tmp"))
        self._sweep()

    def _sweep(self) -> None:
        """Removes what a killed process was writing or removing."""
        for room in (self.path, self.path / CHECKPOINTS, *(table.folder for table in self.tables.values())):
            for path in room.glob(".*.tmp"):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def _advice(self, full: bool) -> str:
        last = self.latest()
        then = f"--resume goes on after round {last[0]}" if last else "start again, as nothing was kept"
        return f"free some space, then {then}" if full else then


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All lines of metrics in the folder `path`, also while another process writes. Lines cut short are left out, all
    others checked: a round, the name of the node, and numbers. Raises `UserError`."""
    if (path / CONFIG).exists() and not (path / METRICS).exists():
        return []  # a run that has just begun
    rows = []
    with disk_errors(path / METRICS, "read"), open_regular(path / METRICS) as file:
        if os.fstat(file.fileno()).st_size > MAX_METRICS_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_METRICS_BYTES >> 20} MiB")
        while line := file.readline(MAX_LINE_BYTES):
            try:
                row = parse_json(line)
            except ValueError:
                continue
            if isinstance(row, dict) and line.endswith(b"\n"):  # `12` of a cut `123` would parse
                if wrong := _wrong(row):
                    raise UserError(f"{path / METRICS} is not the metrics of a run: {wrong}")
                rows.append(row)
    return rows


def _wrong(row: Row) -> str:
    """What is wrong with a line of metrics, or ""."""
    if type(row.get("round")) is not int or "node" not in row:
        return "a line has no round or no node"
    for key, value in row.items():
        if key in TEXT_METRICS:
            fits = isinstance(value, str) and value.isprintable()
        else:
            most = 2**63 if isinstance(value, int) else math.inf  # figures of a run that diverges are large
            fits = value is None or (isinstance(value, int | float) and abs(value) < most)
        if not fits or not key.isprintable():
            return printable(f"{key} = {value!r}", 80)
    return ""


MODEL_FILES = ("config.json", "adapter_config.json")
"""One of them is in every model's folder. A node that answers by an endpoint has none."""


def models(run: Path) -> dict[str, Path]:
    """Each node's model in the last checkpoint of a run's folder whose files have their sizes; empty without any."""
    paths = [path for _, path in sorted(checkpoints(run), reverse=True)]
    return models_in(next((path for path in paths if not damage(path, hashes=False)), paths[0])) if paths else {}


def models_in(checkpoint: Path) -> dict[str, Path]:
    """Each node's model in a checkpoint."""
    rooms = sorted(path for path in checkpoint.iterdir() if path.is_dir())
    return {room.name: room for room in rooms if any((room / name).exists() for name in MODEL_FILES)}


def checkpoints(run: Path) -> list[tuple[int, Path]]:
    """The complete checkpoints in a run's folder: their rounds and folders."""
    names = ((re.fullmatch(r"round-(\d+)", path.name), path) for path in (run / CHECKPOINTS).glob("round-*"))
    return [(int(match[1]), path) for match, path in names if match and path.is_dir()]


def _json_lines(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(json_safe(row), allow_nan=False) + "\n" for row in rows).encode()


def _check_free(path: Path) -> None:
    """Raises `UserError` unless a new run can begin in `path`."""
    with disk_errors(path):
        if path.exists() and not path.is_dir():
            raise UserError(f"{path} is a file: choose another --out")
        # a kill before the first round leaves these behind; a file of settings without LOCK is somebody's own
        names = {entry.name for entry in path.iterdir()} if path.exists() else set()
        taken = names - {LOCK, f".{CONFIG}.tmp"} - ({CONFIG} if LOCK in names else set())
    if taken:
        is_run = (path / CONFIG).exists()
        advice = f"go on with it by --resume {path}, or choose" if is_run else "choose"
        raise UserError(f"{path} {'holds a run' if is_run else 'is not empty'}: {advice} another --out")


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


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
        found = msgspec.json.decode(read_regular(path, MAX_WARNINGS_BYTES), type=list[str])
    except FileNotFoundError:
        return []
    except (OSError, *UNDECODABLE) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    return list(dict.fromkeys(found))[:MAX_WARNINGS]  # each once, so that one that comes again hides no other


def best_node(rows: Sequence[Mapping[str, Any]]) -> str:
    """The node with the highest last held-out pass@1; empty without evaluations."""
    held_out = _held_out(rows)
    return max(held_out, key=held_out.__getitem__, default="")


def best_model(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path | None:
    """The model in the last checkpoint whose node has the highest last held-out pass@1; None without checkpoints."""
    held_out = _held_out(rows)
    return max(models(folder).values(), key=lambda path: held_out.get(path.name, -1.0), default=None)


def _held_out(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The last held-out pass@1 of each node."""
    return {row["node"]: row["eval/pass@1"] for row in rows if row.get("eval/pass@1") is not None}
