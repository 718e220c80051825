"""Reads archives, which strangers may have made: in a process with limits, one row group at a time.

    for group in read_groups(Path("lagoon"), tasks.identities, most=1000):
        group.envelope, group.statement.rollout           # signed bytes, as they came, and what they say

Nobody has checked their signatures, questions or rewards yet: admission does, as with what comes over a network.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from shoal.child import command
from shoal.errors import UserError
from shoal.sandbox.process import GuardedProcess
from shoal.untrusted import UNDECODABLE, read_regular
from shoal.wire.rollouts import Malformed, NewerVersion, Statement
from shoal.wire.signed import ENVELOPES, SignedMessage, is_signed
from shoal_extras.archive.format import MAX_PARTS, Row, parts_of
from shoal_extras.archive.worker import Found, Read, Rows, Start, Weigh

COMMAND: Final = command("shoal_extras.archive.worker")
SECONDS: Final = 20.0  # of processor time for a row group
DOMAIN, FOLDER = b"shoal withdrawal v1\0", "withdrawals"
MAX_BYTES: Final = 4096  # of a withdrawal
MOST, MOST_BYTES = 100_000, 256 << 20  # groups, and bytes of them, that `read_groups` gives


class Reader(AbstractContextManager["Reader"]):
    """A process that reads and scores. For one thread. Close it, or use it as a context manager."""

    def __init__(self, start: Start | None = None) -> None:
        self._process = GuardedProcess(COMMAND, start or Start())

    def ask(self, request: Read | Weigh, seconds: float = SECONDS) -> Rows:
        """The answer. Raises `TimeoutError` or `EOFError` if it takes too much time or memory."""
        self._process.send(request)
        try:
            return _rows.decode(self._process.receive(seconds))
        except KeyboardInterrupt:
            self._process.renew()
            raise

    def row_group(self, archive: Path, name: str, number: int, check: int) -> Rows:
        """One row group of a file; with -1 how many there are. Raises `UserError` for a file that cannot be read within
        the limits. With `check` = 2 it raises `TimeoutError` or `EOFError` if an answer holds the scoring up."""
        try:
            found = self.ask(Read(str(archive), name, number, check))
        except (TimeoutError, EOFError):
            if check == 2:
                raise
            found = Rows(error="it takes too much time or memory")
        if found.error:
            raise UserError(f"cannot read {archive / 'groups' / name}: {found.error}")
        return found

    def pairs(self, archive: Path, name: str) -> Iterator[tuple[Row, Found]]:
        """The rows of a file, each with who signed it."""
        for number in range(self.row_group(archive, name, -1, 0).groups):
            some = self.row_group(archive, name, number, 1)
            yield from zip(some.rows, some.found, strict=True)

    def __exit__(self, *_: object) -> None:
        self._process.close()


class Withdrawal(SignedMessage, frozen=True):
    """A maker takes back what it shared in `swarm` up to `time`: archives leave it out from now on."""


_withdrawals = msgspec.msgpack.Decoder(Withdrawal)


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


@dataclass(frozen=True)
class Group:
    """A group of an archive: the signed bytes, and what they say."""

    envelope: bytes
    statement: Statement


def read_groups(
    archive: Path, tasks: Collection[tuple[str, str, str]] | None = None, *, most: int = MOST
) -> Iterator[Group]:
    """The groups of these tasks, (name, version, hash of the parameters) each as in `Tasks.identities`, the newest
    first. None: of all tasks.

    It ends after `most` of them, or `MOST_BYTES`. The order is that of the files, and within a file that of the rows.
    Raises `UserError` for what is no archive, or cannot be read.
    """
    gone, left = withdrawn([archive]), MOST_BYTES
    with Reader() as reader:
        every = ((name, reader.row_group(archive, name, -1, 0).groups) for name in reversed(parts_of(archive)))
        for name, number in ((name, number) for name, groups in every for number in reversed(range(groups))):
            for row in reversed(reader.row_group(archive, name, number, 0).rows):
                try:
                    said = row.opened()
                except (Malformed, NewerVersion):
                    continue
                asked, (until, _) = said.rollout.question, gone.get((said.key, said.swarm), (-1.0, b""))
                if said.time <= until or (tasks and (asked.task, asked.version, asked.config) not in tasks):
                    continue
                most, left = most - 1, left - len(row.envelope)
                if min(most, left) < 0:
                    return
                yield Group(row.envelope, said)


_rows: msgspec.msgpack.Decoder[Rows] = msgspec.msgpack.Decoder(Rows)
