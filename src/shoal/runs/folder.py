"""A run is a folder, which other tools read as it is.

    config.toml               every setting: what `--resume` goes on with
    metrics.jsonl             a line for each node and round (round 0: the evaluation before any training)
    rollouts.parquet/         a row for each completion; pandas.read_parquet(folder) reads all parts
    learned.parquet/          a row for each rollout that a node learned from: who learned it from whom
    curves.png
    checkpoints/round-000012/ all that the run needs to go on

    with RunFolder.create(Path("runs/one"), config_toml) as folder:
        for round in range(1, rounds + 1):
            folder.log(metrics)
            folder.save(ROLLOUTS, round, completions)
            folder.checkpoint(round, save)

It has plain files and folders alone: what is a link, a pipe or a device may be somebody else's file, and is refused.

A folder is consistent after a kill at any instant: what a checkpoint implies is on disk before the checkpoint
appears under its name, and `rewind` drops what is newer. A failed write is a `UserError` that names the file.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import UserError
from shoal.untrusted import harmless, open_plain, parse_json

if sys.platform != "win32":
    import fcntl

Row = Mapping[str, Any]

CONFIG, METRICS, ROLLOUTS, LEARNED, CURVES, CHECKPOINTS = (
    "config.toml", "metrics.jsonl", "rollouts.parquet", "learned.parquet", "curves.png", "checkpoints",
)  # fmt: skip
LOCK = ".lock"
STATUS = "swarm.json"
"""The state of the swarm, written every few seconds by a joined node."""
MOST_METRICS = 1 << 30
"""Bytes of metrics that are read."""
WORDS = frozenset({"node", "eval/by"})
"""Those of the metrics that are texts; all others are numbers."""
LONGEST_LINE = 1 << 20
"""Bytes of one of their lines."""
DISK_FULL = "the disk is full"

PART_BYTES = 16 << 20
"""Size in memory from which a part of the rollouts is closed: it bounds what each checkpoint writes again."""

SCHEMA = pa.schema(
    {
        "round": pa.int64(),
        "node": pa.string(),
        "task": pa.string(),
        "version": pa.string(),
        "config": pa.string(),
        "seed": pa.int64(),
        "index": pa.int64(),
        "question": pa.string(),
        "completion": pa.string(),
        "finish_reason": pa.string(),
        "reward": pa.float64(),
        "live": pa.bool_(),
    }
)
"""Columns of the rollouts."""

LEARNED_SCHEMA = pa.schema(
    {
        "round": pa.int64(),
        "node": pa.string(),
        "maker": pa.string(),
        "made": pa.int64(),
        "slot": pa.int64(),
        "task": pa.string(),
        "config": pa.string(),
        "seed": pa.int64(),
        "index": pa.int64(),
        "live": pa.bool_(),
        "mean_reward": pa.float64(),
        "foreign": pa.bool_(),
        "gradient_share": pa.float64(),
        "gated_share": pa.float64(),
    }
)
"""Columns of what was learned from: `made` is the maker's round, `mean_reward` by the learner's own verifier; for the
last two see `metrics.learned_rows`."""

TABLES = {ROLLOUTS: SCHEMA, LEARNED: LEARNED_SCHEMA}


class RunFolder:
    """The folder of one run, held by one process. Made by `create` or `open`, ended by `close` or `with`."""

    def __init__(self, path: Path, lock: BinaryIO, made: Sequence[Path] | None = None) -> None:
        self.path = path
        self._lock = lock
        self._made = made  # by `create`: the folders that were not there before it, innermost first
        self._blocks: dict[str, list[pa.Table]] = {name: [] for name in TABLES}  # the parts that are not closed yet
        self._starts: dict[str, int] = {}

    @classmethod
    def create(cls, path: Path, config_toml: str) -> RunFolder:
        """A new run in `path`, which must not exist or be empty. On an error nothing is left behind."""
        _check_free(path)
        made: list[Path] = []
        try:
            with _explained(path):
                made += (folder for folder in (path, *path.parents) if not folder.exists())
                path.mkdir(parents=True, exist_ok=True)
            lock = locked(path)
            try:
                _check_free(path)  # again: another process may have come first
                write_atomically(path / CONFIG, clean(config_toml).encode())
            except BaseException:
                (path / LOCK).unlink()
                lock.close()
                raise
        except BaseException:
            _remove_empty(made)
            raise
        return cls(path, lock, made)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The run in `path`, to go on with: call `latest` and `rewind` next."""
        if not (path / CONFIG).is_file():
            raise UserError(f"{path} is not the folder of a run (it has no {CONFIG}): nothing to resume")
        return cls(path, locked(path))

    def close(self) -> None:
        """Let another process have the folder."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """An error before the first checkpoint of a new run leaves nothing behind: there is nothing to resume."""
        if kind is not None and self._made is not None and self.latest() is None:
            self._discard(self._made)
        self.close()

    def log(self, rows: Sequence[Row]) -> None:
        """Append rows to the metrics. What JSON cannot say (NaN, infinities) becomes null."""
        with _explained(self.path / METRICS), _own(self.path / METRICS, os.O_WRONLY | os.O_APPEND) as file:
            file.write(_json_lines(rows))

    def metrics(self) -> list[dict[str, Any]]:
        """All rows logged so far."""
        return read_metrics(self.path)

    def save(self, table: str, round: int, rows: Sequence[Row]) -> None:
        """Take rows of `round` for one of `TABLES`; the next `checkpoint` or `flush` writes them."""
        if not rows:
            return
        schema, block = TABLES[table], self._blocks[table]
        if not block:
            self._starts[table] = round
        columns = {name: [clean(row[name]) for row in rows] for name in schema.names if name != "round"}
        block.append(pa.table({"round": [round] * len(rows)} | columns, schema=schema))

    def flush(self) -> None:
        """Write what `save` took."""
        for table in TABLES:
            with _explained(self.path / table):
                self._write_block(table)

    def checkpoint(self, round: int, save: Callable[[Path], None]) -> None:
        """Keep the state after `round`, which `save` writes into the folder it gets, and drop older ones.

        A round that has a checkpoint already keeps it. Where `save` fails, the previous checkpoint stays.
        """
        room = self.path / CHECKPOINTS
        target, temporary = room / f"round-{round:06d}", room / f".round-{round:06d}.tmp"
        try:
            for table in TABLES:
                self._write_block(table)
            if (self.path / METRICS).exists():
                _sync(self.path / METRICS)
            room.mkdir(exist_ok=True)
            self._sweep()
            if not target.exists():
                temporary.mkdir()
                save(temporary)
                for path in (*temporary.rglob("*"), temporary):
                    _sync(path)
                temporary.rename(target)
                _sync(room)
                _sync(self.path)
        except Exception as error:
            # torch says nothing of the disk when it is full
            full = _is_full(error) or shutil.disk_usage(self.path).free < 1 << 20
            if not full and not isinstance(error, OSError | UserError):
                raise
            reason = DISK_FULL if full else _reason(error)
            raise UserError(f"cannot write {target}: {reason}; {self._advice(full)}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        with _explained(room):
            for _, path in checkpoints(self.path):
                if path != target:
                    # hidden first: what has the name of a checkpoint is complete, even if a kill comes now
                    path.rename(path.with_name(f".{path.name}.tmp"))
            self._sweep()

    def latest(self) -> tuple[int, Path] | None:
        """The newest complete checkpoint: its round and folder."""
        return max(checkpoints(self.path), default=None)

    def rewind(self, round: int) -> None:
        """Drop metrics and rollouts of later rounds and what a kill left half written."""
        self._blocks = {name: [] for name in TABLES}
        with _explained(self.path):
            self._sweep()
        kept = [row for row in self.metrics() if row["round"] <= round]
        write_atomically(self.path / METRICS, _json_lines(kept))
        for part in (part for table in TABLES for part in (self.path / table).glob("*.parquet")):
            with _explained(part):
                table = pq.read_table(part)
                rounds = table["round"].to_numpy()
                if rounds.min() > round:
                    part.unlink()
                elif rounds.max() > round:
                    _write_part(part, table.filter(pa.array(rounds <= round)))

    def _write_block(self, name: str) -> None:
        """Write the open part again, whole, and close it when it is large."""
        block = self._blocks[name]
        if not block:
            return
        room = self.path / name
        room.mkdir(exist_ok=True)
        table = pa.concat_tables(block)
        _write_part(room / f"from-round-{self._starts[name]:06d}.parquet", table)
        self._blocks[name] = [] if table.nbytes > PART_BYTES else [table]

    def _sweep(self) -> None:
        """Remove what was being written, or removed, when a process was killed."""
        for room in (self.path, self.path / CHECKPOINTS, *(self.path / table for table in TABLES)):
            for path in room.glob(".*.tmp"):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def _discard(self, made: Sequence[Path]) -> None:
        """Remove all that this run wrote, and the folders that were made for it."""
        self._sweep()
        for name in (*TABLES, CHECKPOINTS):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in (METRICS, CURVES, CONFIG, LOCK):
            with contextlib.suppress(OSError):  # it would hide what went wrong before
                (self.path / name).unlink()
        _remove_empty(made)

    def _advice(self, full: bool) -> str:
        last = self.latest()
        then = f"--resume goes on after round {last[0]}" if last else "start again, as nothing was kept"
        return f"free some space, then {then}" if full else then


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All lines of metrics in `path`, also while another process writes. Lines cut short are left out."""
    if (path / CONFIG).exists() and not (path / METRICS).exists():
        return []  # a run that has just begun
    rows = []
    with _explained(path / METRICS, "read"), open_plain(path / METRICS) as file:
        if os.fstat(file.fileno()).st_size > MOST_METRICS:
            raise OSError(errno.EFBIG, f"it has more than {MOST_METRICS >> 20} MiB")
        while line := file.readline(LONGEST_LINE):
            try:
                row = parse_json(line)
            except ValueError:
                continue
            if isinstance(row, dict) and line.endswith(b"\n"):  # `12` of a cut `123` would parse
                if type(row.get("round")) is not int:
                    raise UserError(f"{path / METRICS} is not the metrics of a run: a line has no round")
                rows.append(row)
    return rows


def checkpoints(run: Path) -> list[tuple[int, Path]]:
    """The complete checkpoints of a run's folder: their rounds and folders."""
    names = ((re.fullmatch(r"round-(\d+)", path.name), path) for path in (run / CHECKPOINTS).glob("round-*"))
    return [(int(match[1]), path) for match, path in names if match]


def run_metrics(path: Path) -> list[dict[str, Any]]:
    """The same, each line as a run writes it: the round, the name of the node, and numbers. Raises `UserError`."""
    rows = read_metrics(path)
    for row in rows:
        _check_row(row, path / METRICS)
    return rows


def _check_row(row: dict[str, Any], path: Path) -> None:
    for key, value in row.items():
        number = isinstance(value, int | float) and abs(value) < 2.0**63
        fits = isinstance(value, str) and value.isprintable() if key in WORDS else number or value is None
        if not fits or not key.isprintable():
            raise UserError(f"{path} is not the metrics of a run: {harmless(f'{key} = {value!r}', 80)}")
    if "node" not in row:
        raise UserError(f"{path} is not the metrics of a run: a line has no node")


def ensure_space(path: Path, needed_bytes: int) -> None:
    """Raise `UserError` if the disk that `path` is to lie on has less than `needed_bytes` free."""
    there = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if free < needed_bytes:
        raise UserError(
            f"the disk of {path} has {free / 1e9:.2f} GB free, and a run may need {needed_bytes / 1e9:.2f}: "
            "free some space, or choose another --out"
        )


def write_atomically(path: Path, data: bytes) -> None:
    """Have `path` hold `data`: after a kill at any instant it has its old content or all of the new."""
    temporary = path.with_name(f".{path.name}.tmp")
    with _explained(path):
        try:
            temporary.unlink(missing_ok=True)  # of a process that was killed, or a link that somebody put there
            with temporary.open("xb") as file:  # which follows no link
                file.write(data)
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def clean(value: Any) -> Any:
    """`value` as strict JSON and UTF-8 can say it: no NaN or infinity, no lone surrogates."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value.encode("utf-8", "replace").decode()
        case Mapping():
            return {clean(key): clean(item) for key, item in value.items()}
        case list() | tuple():
            return [clean(item) for item in value]
        case _:
            return value


def _json_lines(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(clean(row), allow_nan=False) + "\n" for row in rows).encode()


def _write_part(path: Path, table: pa.Table) -> None:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())


def _check_free(path: Path) -> None:
    """Raise `UserError` unless a new run can begin in `path`."""
    with _explained(path):
        if path.exists() and not path.is_dir():
            raise UserError(f"{path} is a file: choose another --out")
        # A kill in `create` leaves these two behind.
        taken = path.exists() and {entry.name for entry in path.iterdir()} - {LOCK, f".{CONFIG}.tmp"}
    if taken:
        is_run = (path / CONFIG).exists()
        advice = f"go on with it by --resume {path}, or choose" if is_run else "choose"
        raise UserError(f"{path} {'holds a run' if is_run else 'is not empty'}: {advice} another --out")


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove those of `folders` that are there and empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def locked(path: Path) -> BinaryIO:
    """A file that keeps other processes out of `path` until it is closed or the process ends. Raises `UserError` if
    another has it, or if anything in `path` is neither a file nor a folder."""
    with _explained(path):
        file = _own(path / LOCK, os.O_RDWR)
    if sys.platform != "win32":
        try:
            # not `flock`: forked workers would inherit that, outlive a killed run and keep it locked
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.close()
            raise UserError(f"another process is writing {path}: wait until it ends, or choose another --out") from None
        except OSError:
            pass  # a network disk without locks: go on unguarded
    try:
        _refuse_links(path)
    except BaseException:
        file.close()
        raise
    return file


def _own(path: Path, flags: int) -> BinaryIO:
    """A file of this folder to be written, made if it is not there, and not emptied. Raises `OSError` if it is a link,
    has another name elsewhere, or is no file: to write there would be to write to whatever it stands for."""
    safe = 0 if sys.platform == "win32" else os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        handle = os.open(path, flags | os.O_CREAT | safe, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise OSError(error.errno, f"{path.name} is not an ordinary file") from error
        raise
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
        os.close(handle)
        raise OSError(errno.EINVAL, f"{path.name} is not an ordinary file of its own")
    return open(handle, "r+b" if flags & os.O_RDWR else "wb")


def _refuse_links(path: Path) -> None:
    """Raises `UserError` for anything below `path` that is neither a file nor a folder: a link leads elsewhere, and a
    pipe or a device never ends."""
    waiting = [path]
    with _explained(path, "read"):
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif not entry.is_file(follow_symlinks=False):
                        raise UserError(f"{entry.path} is neither a file nor a folder: a run has no links or pipes")


def _sync(path: Path) -> None:
    """Have the disk keep what is in `path`, a file or a folder."""
    if sys.platform == "win32":  # folders cannot be opened there, and files would have to be open for writing
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _explained(path: Path, verb: str = "write") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot {verb} {path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if _is_full(error):
        return DISK_FULL
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return DISK_FULL in str(error) or os.strerror(errno.ENOSPC) in str(error)  # ours, and that of safetensors
