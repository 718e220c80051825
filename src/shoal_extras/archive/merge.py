"""Archives together, or without what is not wanted; and what a maker withdraws.

    rewrite([Path("a"), Path("b")], Path("both"))                   # the same bytes in any order, as often as you like
    rewrite([archive], archive, lambda row, found: found.time > 1.8e9)

Rows are taken hour by hour, so memory holds an hour of a swarm and not an archive. What stands in the columns of others
is not believed: everything but the archiver's claims is made again from the signed bytes.
"""

import hashlib
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
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
MOST_HOUR: Final = 1 << 30  # bytes of envelopes that are signed within one hour
CACHED: Final = 8  # files whose rows are kept, as files overlap in time
AGAIN: Final = 20  # times that a file is read, on average
Pair = tuple[Row, Found]
Keep = Callable[[Row, Found], bool]
Maker = tuple[bytes, str]
"""A key, and a swarm."""


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


def withdrawn(archives: Iterable[Path]) -> dict[Maker, tuple[float, bytes]]:
    """Until when each maker withdraws what it shared, and its signed word. What nobody signed is left out."""
    latest: dict[Maker, tuple[float, bytes]] = {}
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
    archives: Sequence[Path],
    to: Path,
    keep: Keep = lambda row, found: True,
    context: bytes = b"",
    on_progress: Callable[[int], None] = lambda rows: None,
) -> Counter[str]:
    """Writes the rows of all `archives` that one may `keep` to the archive `to`, which may be one of them. Equal rows
    are one, in the order of the time that their makers signed. Where archivers disagree, the lowest rewards stay.
    `context`: what a private swarm signs with its messages.

    Returns how many rows were kept, and left out by reason. Raises `UserError`.
    """
    count, new, gone = Counter[str](), set[str](), withdrawn(archives)
    old = {(archive, name) for archive in archives for name in parts_of(archive)}
    begin(to)
    with Reader(Start(context=context)) as reader:

        def wanted() -> Iterator[Row]:
            for row, found in _ordered(reader, sorted(old), count):
                until, _ = gone.get((found.key, row.opened().swarm), (-1.0, b""))
                reason = "withdrawn" if found.time <= until else "not kept" if found.not_kept else found.reason
                reason = reason or ("" if keep(row, found) else "not asked for")
                count[reason or "kept"] += 1
                if not reason:
                    yield row

        for chunk in chunks(wanted()):
            new.add(write_part(to, chunk))
            on_progress(count["kept"])
    notices = {_put(to, data) for _, data in gone.values()}
    with disk_errors(to):
        for table in SCHEMAS:  # `groups` first: what it names is complete at any instant
            for name in {name for archive, name in old if archive.resolve() == to.resolve()} - new:
                (to / table / name).unlink(missing_ok=True)
        for path in set((to / FOLDER).glob("*")) - notices:
            path.unlink()
    return count


def _ordered(reader: Reader, parts: Sequence[tuple[Path, str]], count: Counter[str]) -> Iterator[Pair]:
    """The rows of all files whose signatures are right, each once, by (time, id)."""
    hours: defaultdict[int, set[tuple[Path, str]]] = defaultdict(set)
    for part in parts:
        for _, found in reader.pairs(*part):
            if found.key:
                hours[_hour(found)].add(part)
            else:
                count[found.reason] += 1
    cache: OrderedDict[tuple[Path, str], list[Pair]] = OrderedDict()
    left = AGAIN * len(parts) + 1000
    for hour in sorted(hours):
        same: dict[tuple[float, str], Pair] = {}
        for part in sorted(hours[hour]):
            if part not in cache:
                left -= 1
                cache[part] = [pair for pair in reader.pairs(*part) if pair[1].key]
                if len(cache) > CACHED:
                    cache.popitem(last=False)
            cache.move_to_end(part)
            for row, found in (pair for pair in cache[part] if _hour(pair[1]) == hour):
                at = found.time, found.id
                count["repeated"] += at in same
                same[at] = min(same.get(at, (row, found)), (row, found), key=_doubt)
        if left < 0 or sum(len(row.envelope) for row, _ in same.values()) > MOST_HOUR:
            raise UserError(f"{parts[0][0]} and the others have too much of one hour, or files in no order of time")
        for at in sorted(same):
            yield same[at]


def _hour(found: Found) -> int:
    return int(found.time // 3600)


def _doubt(pair: Pair) -> tuple[bool, float, bytes]:
    """Of two archivers' claims about a group, the least stays: one that has rewards, and the lowest."""
    row, _ = pair
    known = [value for value in row.rewards or () if not math.isnan(value)]
    return row.rewards is None, sum(known), msgspec.msgpack.encode(row)
