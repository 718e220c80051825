"""Archives together, or without what is not wanted; and what a maker withdraws.

    rewrite([Path("a"), Path("b")], Path("both"))                   # the same bytes in any order, as often as you like
    rewrite([archive], archive, lambda row, found: found.time > 1.8e9)

What stands in the columns of others is not believed: all but the archiver's claims is made again from the signed bytes.
"""

import hashlib
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.runs.disk import disk_errors, write_atomically
from shoal.wire.signed import sign_message
from shoal_extras.archive.format import SCHEMAS, Row, begin, chunks, parts_of, write_part
from shoal_extras.archive.reader import DOMAIN, FOLDER, Reader, Withdrawal, withdrawn
from shoal_extras.archive.worker import Found, Start

Keep = Callable[[Row, Found], bool]
_encode, _row = msgspec.msgpack.encode, msgspec.msgpack.Decoder(Row).decode


def withdraw(archive: Path, identity: Identity, swarm: str, now: float) -> None:
    """Signs a withdrawal and puts it into an archive, which honours it when it is merged. Raises `UserError`."""
    parts_of(archive)
    _put(archive, sign_message(DOMAIN, Withdrawal(1, swarm, identity.public, now), identity))


def _put(archive: Path, data: bytes) -> Path:
    path = archive / FOLDER / f"{hashlib.blake2b(data, digest_size=16).hexdigest()}.msgpack"
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
    return path


def rewrite(
    archives: Sequence[Path], to: Path, keep: Keep = lambda row, found: True, context: bytes = b""
) -> Counter[str]:
    """Writes the rows of all `archives` that one may `keep` to the archive `to`, which may be one of them. Equal rows
    are one, in the order of the time that their makers signed. Where archivers disagree, the lowest rewards stay.
    `context`: what a private swarm signs with its messages.

    Returns how many rows were kept, and left out by reason. Raises `UserError`.
    """
    count, gone = Counter[str](), withdrawn(archives)
    old = {(archive, name) for archive in archives for name in parts_of(archive)}
    begin(to)
    # In a temporary file, as they may not fit into memory.
    with Reader(Start(context=context)) as reader, closing(sqlite3.connect("")) as rows:
        try:
            rows.execute("CREATE TABLE rows (time REAL, id TEXT, row BLOB, PRIMARY KEY (time, id))")
            for archive, name in sorted(old):
                for row, found in reader.pairs(archive, name):
                    until, _ = gone.get((found.key, found.swarm), (-1.0, b""))
                    reason = "withdrawn" if found.time <= until else "not kept" if found.not_kept else found.reason
                    reason = reason or ("" if keep(row, found) else "not asked for")
                    if not reason:
                        at = found.time, found.id
                        known = rows.execute("SELECT row FROM rows WHERE time = ? AND id = ?", at).fetchone()
                        reason = "repeated" if known else "kept"
                        stays = min(row, _row(known[0]), key=_doubt) if known else row
                        rows.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (*at, _encode(stays)))
                    count[reason] += 1
                    count["bytes"] += len(row.envelope) * (reason == "kept")
            kept = (_row(data) for (data,) in rows.execute("SELECT row FROM rows ORDER BY time, id"))
            new = {write_part(to, chunk) for chunk in chunks(kept)}
        except sqlite3.Error as error:
            raise UserError(f"cannot put the rows in order: {error} (TMPDIR names a folder with room)") from error
    notices = {_put(to, data) for _, data in gone.values()}
    with disk_errors(to):
        for table in SCHEMAS:  # `groups` first: what it names is complete at any instant
            for name in {name for archive, name in old if archive.resolve() == to.resolve()} - new:
                (to / table / name).unlink(missing_ok=True)
        for path in set((to / FOLDER).glob("*")) - notices:
            path.unlink()
    return count


def _doubt(row: Row) -> tuple[bool, float, bytes]:
    """Of two archivers' claims about a group, the least stays: one that has rewards, and the lowest."""
    known = [value for value in row.rewards or () if not math.isnan(value)]
    return row.rewards is None, sum(known), _encode(row)
