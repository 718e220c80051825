"""Archives together, or without what is not wanted; and what a maker withdraws.

    rewrite([Path("a"), Path("b")], Path("both"))                   # the same bytes in any order, as often as you like
    rewrite([archive], archive, lambda row, found: found.time > 1.8e9)

What stands in the columns of others is not believed: all but the archiver's claims is made again from the signed bytes.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.runs.disk import disk_errors, write_atomically
from shoal.untrusted import UNDECODABLE, read_regular
from shoal.wire.signed import ENVELOPES, SignedMessage, is_signed, sign_message
from shoal_extras.archive.format import MAX_PARTS, SCHEMAS, Row, begin, chunks, parts_of, write_part
from shoal_extras.archive.reader import Reader
from shoal_extras.archive.worker import Found, Start

DOMAIN, FOLDER = b"shoal withdrawal v1\0", "withdrawals"
MAX_BYTES: Final = 4096  # of a withdrawal
MOST: Final = 2 << 30  # bytes of envelopes, which are in memory together
Keep = Callable[[Row, Found], bool]


class Withdrawal(SignedMessage, frozen=True):
    """A maker takes back what it shared in `swarm` up to `time`: archives leave it out from now on."""


_withdrawals = msgspec.msgpack.Decoder(Withdrawal)


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


def withdrawn(archives: Iterable[Path]) -> dict[tuple[bytes, str], tuple[float, bytes]]:
    """Until when each key withdraws what it shared in a swarm, and its signed word. What is not signed is left out."""
    latest: dict[tuple[bytes, str], tuple[float, bytes]] = {}
    for folder in (archive / FOLDER for archive in archives):
        paths = sorted(folder.glob("*.msgpack"))[:MAX_PARTS] if folder.is_dir() and not folder.is_symlink() else []
        for path in (path for path in paths if not path.is_symlink()):
            with suppress(OSError, *UNDECODABLE):
                data = read_regular(path, MAX_BYTES)
                envelope = ENVELOPES.decode(data)
                said = _withdrawals.decode(envelope.statement)
                if said.schema_version == 1 and is_signed(DOMAIN, said, envelope):
                    maker = said.key, said.swarm
                    latest[maker] = max(latest.get(maker, (-1.0, b"")), (said.time, data))
    return latest


def rewrite(
    archives: Sequence[Path], to: Path, keep: Keep = lambda row, found: True, context: bytes = b""
) -> Counter[str]:
    """Writes the rows of all `archives` that one may `keep` to the archive `to`, which may be one of them. Equal rows
    are one, in the order of the time that their makers signed. Where archivers disagree, the lowest rewards stay.
    `context`: what a private swarm signs with its messages.

    Returns how many rows were kept, and left out by reason. Raises `UserError`.
    """
    count, gone, same = Counter[str](), withdrawn(archives), dict[tuple[float, str], Row]()
    old = {(archive, name) for archive in archives for name in parts_of(archive)}
    begin(to)
    with Reader(Start(context=context)) as reader:
        for archive, name in sorted(old):
            for row, found in reader.pairs(archive, name):
                until = -1.0 if found.reason else gone.get((found.key, row.opened().swarm), (-1.0, b""))[0]
                reason = "withdrawn" if found.time <= until else "not kept" if found.not_kept else found.reason
                reason = reason or ("" if keep(row, found) else "not asked for")
                at = found.time, found.id
                if not reason:
                    reason = "repeated" if at in same else "kept"
                    same[at] = min(same.get(at, row), row, key=_doubt)
                count[reason] += 1
                count["bytes"] += len(row.envelope) * (reason == "kept")
            if count["bytes"] > MOST:
                raise UserError(f"more than {MOST:,} bytes: prune the archives first, by time or task")
    new = {write_part(to, chunk) for chunk in chunks(same[at] for at in sorted(same))}
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
    return row.rewards is None, sum(known), msgspec.msgpack.encode(row)
