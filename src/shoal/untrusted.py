"""Files and texts that somebody else may have written: read within bounds, and shown without harm.

    data = read_plain(path, most=2**20)     # never a pipe, a device or gigabytes
    print(harmless(text))                   # nothing in it moves a cursor, hides or goes on for pages

JSON and TOML are parsed by `parse_json` and `parse_toml`, which raise `ValueError` alone, whatever the text is.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any, BinaryIO, Final

DEEPEST: Final = 32
"""Tables and arrays within each other."""
DOTS: Final = 1000
"""In a line of TOML: the parser takes quadratic time for a key of many parts."""
LONGEST_MESSAGE: Final = 2000
"""Characters of an error message that are shown."""


def open_plain(path: Path) -> BinaryIO:
    """`path` for reading. Raises `OSError` if it is not an ordinary file: a pipe or a device could block for ever."""
    handle = os.open(path, os.O_RDONLY | (0 if sys.platform == "win32" else os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not an ordinary file")
    return open(handle, "rb")


def read_plain(path: Path, most: int) -> bytes:
    """All of an ordinary file. Raises `OSError`, also if it has more than `most` bytes."""
    with open_plain(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return data


def parse_json(data: bytes) -> Any:
    """Strict JSON. Raises `ValueError` if it is none or is nested too deeply."""
    try:
        return json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_toml(data: bytes) -> dict[str, Any]:
    """TOML as people write it. Raises `ValueError` for what is none, is nested too deeply, or has numbers beyond 64
    bits or control characters."""
    text = data.decode("utf-8")
    if any(line.count(".") > DOTS for line in text.splitlines()):
        raise ValueError(f"a line has more than {DOTS} dots")
    try:
        settings = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check(settings)
    return settings


def harmless(text: str, most: int = LONGEST_MESSAGE) -> str:
    """`text` in one line of at most `most` characters, with ? in place of what a terminal obeys or does not show."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(sign if sign.isprintable() else " " if sign in "\n\t" else "?" for sign in cut)


def _check(settings: dict[str, Any]) -> None:
    """Without recursion: what is deep is what is looked for."""
    waiting: list[tuple[Any, int]] = [(settings, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
        match value:
            case dict():
                waiting += [(item, depth + 1) for pair in value.items() for item in pair]
            case list():
                waiting += [(item, depth + 1) for item in value]
            case bool():
                pass
            case int() if not -(2**63) <= value < 2**63:
                raise ValueError("a number has more than 64 bits")
            case float() if not math.isfinite(value):
                raise ValueError("a number is not finite")
            case str() if any((ord(sign) < 32 and sign not in "\n\r\t") or 127 <= ord(sign) < 160 for sign in value):
                raise ValueError(f"the text {harmless(value, 60)!r} has control characters")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def encodable(text: str) -> str:
    """`text` with "?" for lone surrogates, which no encoding has."""
    return text.encode("utf-8", "replace").decode()
