"""A judge's address: http://HOST:PORT#KEY, the key in hex."""

import contextlib
from urllib.parse import urlsplit

from shoal.errors import UserError


def parse_judge_address(address: str) -> tuple[str, bytes]:
    """The URL and the key in a judge's address. Raises `UserError`."""
    url, _, hex_key = address.partition("#")
    key = b""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if hex_key:
            key = bytes.fromhex(hex_key)
        if parts.scheme in ("http", "https") and parts.hostname and len(key) in (0, 32) and bool(key) == bool(hex_key):
            _ = parts.port
            return url.rstrip("/"), key
    raise UserError(f"{address!r} is no judge: give http://HOST:PORT or http://HOST:PORT#KEY, the key in 64 hex digits")
