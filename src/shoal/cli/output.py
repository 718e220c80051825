"""Standard streams that end no run: whoever reads them may go away, and a terminal may lack a character."""

import io
import os
import sys
from typing import Any


class _Lasting(io.FileIO):
    """Bytes that cannot be written are lost: of a pipe or a terminal that was closed, or of a log on a full disk."""

    def write(self, data: "bytes | memoryview") -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError:
            return len(data)


def make_streams_last() -> None:
    """Replaces standard output and error by streams that never raise: a character that their encoding lacks becomes
    `?`. What was closed at the start becomes the null device, so that no file gets its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (for good)
    sys.stdout, sys.stderr = _lasting(sys.stdout, 1), _lasting(sys.stderr, 2)


def _lasting(stream: Any, number: int) -> io.TextIOWrapper:
    encoding, unbuffered = (stream.encoding, stream.write_through) if stream else ("utf-8", False)
    raw: Any = _Lasting(number, "wb", closefd=False)
    buffer = raw if unbuffered else io.BufferedWriter(raw)
    lines = number == 2 or raw.isatty()
    return io.TextIOWrapper(buffer, encoding, "replace", line_buffering=lines, write_through=unbuffered)
