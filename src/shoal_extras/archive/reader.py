"""Reads archives, which strangers may have made: in a process with limits, one row group at a time.

    for group in read_groups(Path("lagoon"), tasks.identities, most=1000):
        group.envelope, group.statement.rollout           # signed bytes, as they came, and what they say

Nobody has checked their signatures, questions or rewards yet: admission does, as with what comes over a network.
"""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from shoal.child import command
from shoal.errors import UserError
from shoal.sandbox.process import GuardedProcess
from shoal.wire.rollouts import Malformed, NewerVersion, Statement
from shoal_extras.archive.format import Row, parts_of
from shoal_extras.archive.worker import Found, Read, Rows, Start, Weigh

COMMAND: Final = command("shoal_extras.archive.worker")
SECONDS: Final = 20.0  # of processor time for a row group
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

    def read(self, archive: Path, name: str, check: int = 0) -> Iterator[Rows]:
        """The row groups of a file. Raises `UserError` for one that cannot be read within the limits."""
        number, groups = 0, 1
        while number < groups:
            found = self.row_group(archive, name, number, check)
            yield found
            number, groups = number + 1, found.groups

    def row_group(self, archive: Path, name: str, number: int, check: int) -> Rows:
        """One of them. With `check` = 2 it raises `TimeoutError` or `EOFError` if an answer holds the scoring up."""
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
        for some in self.read(archive, name, 1):
            yield from zip(some.rows, some.found, strict=True)

    def __exit__(self, *_: object) -> None:
        self._process.close()


@dataclass(frozen=True)
class Group:
    """A group of an archive: the signed bytes, and what they say."""

    envelope: bytes
    statement: Statement


def read_groups(
    archive: Path,
    tasks: Collection[tuple[str, str, str]] | None = None,
    *,
    most: int = MOST,
    most_bytes: int = MOST_BYTES,
    since: float = 0.0,
) -> Iterator[Group]:
    """The groups of these tasks, (name, version, hash of the parameters) each as in `Tasks.identities`, the newest
    first. None: of all tasks.

    most, most_bytes: where it ends. since: seconds since 1970 of the oldest, by the clock of their makers. The order is
    that of the files, and within a file that of the rows. Raises `UserError` for what is no archive, or cannot be read.
    """
    with Reader() as reader:
        for name in reversed(parts_of(archive)):
            rows = [row for some in reader.read(archive, name) for row in some.rows]
            for row in reversed(rows):
                try:
                    said = row.opened()
                except (Malformed, NewerVersion):
                    continue
                asked = said.rollout.question
                if said.time < since or (tasks and (asked.task, asked.version, asked.config) not in tasks):
                    continue
                most, most_bytes = most - 1, most_bytes - len(row.envelope)
                if min(most, most_bytes) < 0:
                    return
                yield Group(row.envelope, said)


_rows: msgspec.msgpack.Decoder[Rows] = msgspec.msgpack.Decoder(Rows)
