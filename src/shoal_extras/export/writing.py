"""Files that appear complete or not at all.

with scratch_beside(Path("out")) as scratch:      # a hidden folder beside it
    lm.save(scratch)
    keep(scratch)
    scratch.replace("out")
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.errors import UserError, in_brief
from shoal.runs.disk import DISK_FULL, give_usual_rights, is_full, reason, sync


def check_folder(out: Path) -> None:
    """Raises `UserError` unless `out` is a new or empty folder."""
    with write_errors(out):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"'{out}' is {'not empty' if out.is_dir() else 'a file'}: choose another folder")


def keep(scratch: Path) -> None:
    """Makes the disk keep a folder, which anybody may read."""
    for path in (*scratch.rglob("*"), scratch):
        give_usual_rights(path)
        sync(path)


@contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
    """A hidden folder on the disk of `out`, which is gone afterwards. Raises `UserError` for a failed write."""
    with write_errors(out):
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.absolute().parent))
    try:
        with write_errors(out):  # here, as a full disk is full until the folder is gone
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def write_errors(out: Path) -> Iterator[None]:
    """Turns what a failed write raises into one line that names `out`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # saving raises errors of its own, which do not say that the disk is full
        existing = next(parent for parent in out.absolute().parents if parent.exists())
        full = is_full(error) or shutil.disk_usage(existing).free < 1 << 20
        why = DISK_FULL if full else reason(error) if isinstance(error, OSError) else in_brief(error)
        raise UserError(f"cannot write '{out}': {why}") from error
