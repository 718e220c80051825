"""A judge's address: http://HOST:PORT#KEY, the key in hex."""

import contextlib
from urllib.parse import urlsplit

from shoal.errors import UserError


def parse_judge_address(address: str) -> tuple[str, bytes]:
    """The URL and the key in a judge's address. Raises `UserError`."""
    url, _, key = address.partition("#")
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        _ = parts.port  # raises for what is no number
        if parts.scheme in ("http", "https") and parts.hostname and len(bytes.fromhex(key)) == 32:
            return url.rstrip("/"), bytes.fromhex(key)
    raise UserError(f"{address!r} is no judge: give http://HOST:PORT#KEY, the key in 64 hex digits")
