"""Files and texts that a stranger may have written: read within limits, and shown without harm.

    data = read_regular(path, max_bytes=2**20)     # never a pipe, a device or gigabytes
    print(printable(text))                         # it cannot move the cursor, hide or fill pages

`parse_json` and `parse_toml` raise `ValueError` and nothing else, whatever the text is.
"""

import errno
import json
import math
import os
import re
import stat
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import regex

MAX_DEPTH: Final = 32
"""Tables and arrays within each other."""
MAX_DOTS: Final = 1000
"""In a line of TOML: for a key of many parts the parser takes quadratic time. A line ends with \\n there, and with no
other character that `str.splitlines` knows."""
MAX_SHOWN: Final = 2000
"""Characters of a text that are shown."""
UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what they should be."""
TOO_DEEP: Final = "it is nested too deeply"
KEY_PART: Final = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
LONG_KEY: Final = re.compile(rf"^[ \t\[]*+(?:{KEY_PART}[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}", re.MULTILINE)
"""A line of TOML whose key, or table, is nested too deeply. For each key the parser walks through all parts of its
table, so both together must be short."""
MARKS: Final = regex.compile(r"\p{M}{31}")


def open_regular(path: Path, follow_links: bool = True) -> BinaryIO:
    """Opens `path` for reading. Raises `OSError` if it is not an ordinary file: a pipe or a device may never end."""
    wrong = OSError(errno.EINVAL, "it is not an ordinary file")
    if not stat.S_ISREG(path.stat(follow_symlinks=follow_links).st_mode):
        raise wrong  # to open a device can have effects
    unix = 0 if sys.platform == "win32" else os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
    handle = os.open(path, os.O_RDONLY | unix)
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # it was replaced meanwhile
        os.close(handle)
        raise wrong
    return open(handle, "rb")


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The content of an ordinary file. Raises `OSError`, also if it is longer than `max_bytes`."""
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"it has more than {max_bytes:,} bytes")
    return data


def parse_json(data: bytes) -> Any:
    """Parses strict JSON. Raises `ValueError`."""
    try:
        return json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def parse_toml(data: bytes) -> dict[str, Any]:
    """Parses TOML as people write it. Raises `ValueError`, also for deep nesting, numbers beyond 64 bits and control
    characters."""
    text = data.decode("utf-8")
    if any(line.count(".") > MAX_DOTS for line in text.split("\n")):
        raise ValueError(f"a line has more than {MAX_DOTS} dots")
    if LONG_KEY.search(text):
        raise ValueError(TOO_DEEP)
    try:
        settings = tomllib.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    _check(settings)
    return settings


def json_safe(value: Any) -> Any:
    """`value` as strict JSON in UTF-8 can have it: null for NaN and infinities, ? for lone surrogates."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value.encode("utf-8", "replace").decode()
        case Mapping():
            return {json_safe(key): json_safe(item) for key, item in value.items()}
        case list() | tuple():
            return [json_safe(item) for item in value]
        case _:
            return value


def piles_marks(text: str) -> bool:
    """Whether more than 30 marks follow one letter, as no language has it (Unicode's Stream-Safe Text Format, UAX 15).
    To compose them takes time that grows with the square of their number."""
    return not text.isascii() and MARKS.search(text) is not None


def printable(text: str, max_length: int = MAX_SHOWN) -> str:
    """`text` in one line of at most `max_length` characters, with ? for what would steer a terminal or be invisible."""
    cut = text if len(text) <= max_length else text[: max_length - 1] + "…"
    return "".join(char if char.isprintable() else " " if char in "\n\t" else "?" for char in cut)


def _check(settings: dict[str, Any]) -> None:
    """Raises `ValueError`. Not recursive, since deep nesting would end the recursion with another error."""
    waiting: list[tuple[Any, int]] = [(settings, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ValueError(TOO_DEEP)
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
            case str() if any((ord(char) < 32 and char not in "\n\r\t") or 127 <= ord(char) < 160 for char in value):
                raise ValueError(f"the text {printable(value, 60)!r} has control characters")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def encodable(text: str) -> str:
    """`text` with "?" for lone surrogates, which no encoding has."""
    return text.encode("utf-8", "replace").decode()
