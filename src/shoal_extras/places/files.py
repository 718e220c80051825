"""The files of a place: what nodes of a swarm add to a shared folder or URL.

    shoal/lagoon/open/20261128T11/20261128T110530123-KEY-HASH

    data = pack([("rollouts", envelope), ...])
    name = name_of(data, address, time.time())
    messages = unpack(data)                          # raises `BadFile`

`KEY` is the address of the node that wrote the file (64 hex digits: its key or, in a private swarm, a hash), `HASH` is
that of the content, and the folder is the hour (UTC). A file is added whole, by its node alone, and never changes: no
two writes meet, and whoever lists an hour's folder has all that is new. docs/reference/places.md describes the bytes.

A file is a stranger's: it is bounded in size, and nothing in it is believed but signatures.
"""

import hashlib
import re
import time
from calendar import timegm
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from shoal.identity.secret import OVERHEAD
from shoal.transports.base import Channel
from shoal.wire.rollouts import MAX_BYTES

MAGIC: Final = b"shoal place 1\n"
MAX_FILE: Final = 4 << 20  # bytes of a file. Writers begin a new one at a quarter of it
MAX_MESSAGES: Final = 4096  # of a file
_CODES: Final[dict[int, Channel]] = {ord("r"): "rollouts", ord("n"): "notices"}
_NAME: Final = re.compile(r"(\d{8}T\d{2})\d{7}-([0-9a-f]{64})-([0-9a-f]{32})", re.ASCII)


class BadFile(ValueError):  # noqa: N818 (it is what a stranger wrote, not a fault)
    """The bytes are no file of a place, or not all of one yet. The message says why."""


@dataclass(frozen=True, order=True)
class FileName:
    """The name of a file. Later ones sort after earlier ones, by the clocks of their writers."""

    name: str

    @property
    def hour(self) -> str:
        """The folder that it is in."""
        return self.name[:11]

    @property
    def address(self) -> str:
        """Of the node that says it wrote the file: the signatures within say whether it did."""
        return self.name[19:83]

    @property
    def path(self) -> str:
        """Below the folder of the swarm."""
        return f"{self.hour}/{self.name}"

    @property
    def time(self) -> float:
        """Seconds since 1970, by the writer's clock; 0 for a time that is none."""
        try:
            return timegm(time.strptime(self.name[:15], "%Y%m%dT%H%M%S")) + int(self.name[15:18]) / 1000
        except ValueError:
            return 0.0

    def holds(self, data: bytes) -> bool:
        """Whether `data` is all of the file."""
        return _digest(data) == self.name[84:]


def parse_name(hour: str, name: str) -> FileName | None:
    """The name of a file in the folder `hour`; None for what no node wrote there: temporary and foreign files."""
    found = _NAME.fullmatch(name)
    return FileName(name) if found and found[1] == hour else None


def name_of(data: bytes, address: str, now: float) -> FileName:
    """The name under which the node `address` adds `data` at `now` (seconds since 1970)."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f"{int(now % 1 * 1000):03}"
    return FileName(f"{stamp}-{address}-{_digest(data)}")


def hour_of(at: float) -> str:
    """The folder of what is added at this time (seconds since 1970)."""
    return time.strftime("%Y%m%dT%H", time.gmtime(at))


def pack(messages: Iterable[tuple[Channel, bytes]]) -> bytes:
    """The content of a file."""
    return MAGIC + b"".join(frame(channel, data) for channel, data in messages)


def frame(channel: Channel, data: bytes) -> bytes:
    """A message as it stands in a file: a letter for the channel, four bytes for the length, the message."""
    return channel[:1].encode() + len(data).to_bytes(4, "big") + data


def unpack(data: bytes, torn: bool = False) -> list[tuple[Channel, bytes]]:
    """The messages in a file, in their order. `torn`: its end may be missing. Raises `BadFile`."""
    if not data.startswith(MAGIC):
        raise BadFile("it does not begin as a file of a place")
    found, at = list[tuple[Channel, bytes]](), len(MAGIC)
    while at + 5 <= len(data):
        code, size = data[at], int.from_bytes(data[at + 1 : at + 5], "big")
        if code not in _CODES or size > MAX_BYTES + OVERHEAD or len(found) == MAX_MESSAGES:
            raise BadFile("a message of an unknown kind or length, or too many")
        if at + 5 + size > len(data):
            break
        found.append((_CODES[code], data[at + 5 : at + 5 + size]))
        at += 5 + size
    if at != len(data) and not torn:
        raise BadFile("its end is missing")
    return found


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
