"""What a node has said and a place does not have yet: on disk, so that nothing is lost by a kill at any byte, by a
place that is away for a day, or by a write that is refused.

    outbox = Outbox(folder, address)
    outbox.add("rollouts", envelope)          # on disk when it returns
    for name, data in outbox.sealed(time.time()):
        store.write(path, data)               # again, and harmless, if this process is killed before the next line
        outbox.sent(name)

    folder/open      messages of the next file
    folder/NAME      files that wait for the place
    folder/sent      names and sizes of the files in the place, to remove them when they are old or too many
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shoal.transports.base import Channel
from shoal_extras.places.files import MAGIC, MAX_FILE, BadFile, FileName, frame, name_of, pack, parse_name, unpack

FULL: Final = MAX_FILE // 4  # bytes after which a file is sealed
WAITING: Final = 256 << 20  # bytes of sealed files that wait; then the oldest go
STALE: Final = 1800.0
"""Seconds after which a file that waits gets a new name: readers look at the latest hours."""


class Outbox:
    """One node's messages for a place. One process at a time has it; not thread-safe. Methods raise `OSError`."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder, self._address = folder, address
        self._open = folder / "open"
        self.lost = 0
        """Files that waited for so long that newer ones took their place."""
        self._recorded: set[FileName] = set()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            self._mend()

    def add(self, channel: Channel, data: bytes) -> int:
        """Takes a message; how many bytes the next file has then."""
        before = self.size
        with self._open.open("ab", buffering=0) as file:
            whole = (b"" if before else MAGIC) + frame(channel, data)
            if (written := file.write(whole)) != len(whole):  # a disk that is full
                file.truncate(before)
                raise OSError(28, f"only {written} of {len(whole)} bytes could be written")
        return before + len(whole)

    @property
    def size(self) -> int:
        """Bytes of the next file."""
        return self._open.stat().st_size if self._open.exists() else 0

    def seal(self, now: float) -> None:
        """Closes the next file, if there is anything in it."""
        if self.size > len(MAGIC):
            os.replace(self._open, self._folder / name_of(self._open.read_bytes(), self._address, now).name)
        waiting = self.waiting()
        while len(waiting) * FULL > WAITING:
            (self._folder / waiting.pop(0).name).unlink(missing_ok=True)
            self.lost += 1

    def waiting(self) -> list[FileName]:
        """The sealed files, the oldest first."""
        names = (parse_name(name[:11], name) for name in os.listdir(self._folder))
        return sorted(name for name in names if name and name.address == self._address)

    def sealed(self, now: float) -> Iterator[tuple[FileName, bytes]]:
        """The sealed files with their content, the oldest first."""
        for name in self.waiting():
            data = (self._folder / name.name).read_bytes()
            if abs(now - name.time) > STALE:
                renamed = name_of(data, self._address, now)
                os.replace(self._folder / name.name, self._folder / renamed.name)
                name = renamed
            if name not in self._recorded:  # before it is sent: a name too much does no harm
                with (self._folder / "sent").open("a") as file:
                    file.write(f"{name.name} {len(data)}\n")
                self._recorded.add(name)
            yield name, data

    def sent(self, name: FileName) -> None:
        """The place has this file."""
        (self._folder / name.name).unlink(missing_ok=True)
        self._recorded.discard(name)

    def surplus(self, oldest: float, most: int) -> list[FileName]:
        """Own files in the place that are from before `oldest` (seconds since 1970), or more than the newest `most`
        bytes; the oldest first. Forget those that are removed."""
        gone, total = list[FileName](), 0
        for name, size in reversed(self._record().items()):
            total += size
            if name.time < oldest or total > most:
                gone.append(name)
        return gone[::-1]

    def forget(self, name: FileName) -> None:
        """The place does not have this file any more."""
        kept = self._record()
        kept.pop(name, None)
        (self._folder / ".sent").write_text("".join(f"{name.name} {size}\n" for name, size in kept.items()))
        os.replace(self._folder / ".sent", self._folder / "sent")

    def _record(self) -> dict[FileName, int]:
        """Names and sizes of what was sent."""
        record = self._folder / "sent"
        lines = record.read_text("ascii", "replace").splitlines() if record.exists() else []
        words = (line.partition(" ") for line in lines)
        found = ((parse_name(word[:11], word), size) for word, _, size in words)
        return {name: int(size) for name, size in found if name and size.isdecimal()}

    def _mend(self) -> None:
        """Cuts off what a killed process did not write to its end."""
        try:
            whole = pack(unpack(self._open.read_bytes(), torn=True))
        except BadFile:
            whole = b""
        os.truncate(self._open, len(whole))
