"""Reads the fields of Zenoh's messages: bytes, numbers, extensions.

Zenoh reads some extensions without a look at the length that they give; so does this, and refuses them where the two
do not agree.
"""

MORE = 0x80
"""The flag of a header that says that extensions follow, or further ones."""
MAX_WAIT = 60_000  # milliseconds that a query may stay open
_TIMEOUT = 0x26
_NUMBERS = {0x21, 0x25, _TIMEOUT, 0x31, 0x34}
"""Extensions that are numbers, by their header: quality of service, budget, timeout, priority, target."""
_NONE: dict[int, str] = {}


class Unreadable(Exception):  # noqa: N818 (it is what the bytes are)
    """No session of a client sends these bytes."""


class ZenohFields:
    """Reads one field after another. A field that is cut short raises `IndexError`, or moves `_at` past the end."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _number(self) -> int:
        data, at = self._data, self._at
        byte = data[at]
        at += 1
        value, shift = byte & 0x7F, 7
        while byte & 0x80:
            if shift > 56:
                raise Unreadable("a number that is too large")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        self._at = at
        return value

    def _skip(self) -> None:
        """Skips bytes that follow their number."""
        size = self._number()
        self._at += size

    def _encoding(self) -> None:
        if self._number() & 1:
            self._skip()

    def _extensions(self, header: int, known: dict[int, str] = _NONE) -> None:
        more = header & MORE
        while more:
            byte = self._byte()
            more, extension = byte & MORE, byte & 0x7F
            if extension in _NUMBERS:
                if self._number() > MAX_WAIT and extension == _TIMEOUT:
                    raise Unreadable("a query that stays open for too long")
            elif extension in known:
                self._extension(known[extension])
            else:
                raise Unreadable(f"an extension {extension:#x}")

    def _extension(self, form: str) -> None:
        size = self._number()
        end = self._at + size
        if form == "value":
            self._encoding()
            if self._at > end:
                raise Unreadable("an extension with a wrong length")
        elif form != "bytes":  # an id of 1 to 16 bytes and a number; for the source of data, another number
            length = 1 + (self._byte() >> 4)
            self._at += length
            self._number()
            if form == "source":
                self._number()
            if self._at != end:
                raise Unreadable("an extension with a wrong length")
        self._at = end
