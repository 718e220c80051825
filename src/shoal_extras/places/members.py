"""A list of members, for a swarm whose nodes cannot write to one place: each has its own, and reads those of all.

    # lagoon.members, a file or at https://
    hf://datasets/ada/lagoon  KEY  SIGNATURE
    hf://buckets/bob/lagoon   KEY  SIGNATURE

Whoever keeps the list adds the line that `shoal join MEMBERS PLACE` prints. By its signature the owner of the key says
that this is its place, so nobody else's files there count, and nobody can name a place in another's name.
"""

import re
import time
import urllib.request
from pathlib import Path
from typing import Final

from shoal.errors import UserError, in_brief
from shoal.identity.keys import verify
from shoal.transports.base import TransportContext
from shoal.untrusted import read_regular

DOMAIN: Final = b"shoal member v1\0"
MAX_BYTES: Final = 1 << 20
MOST: Final = 1000  # members that are read
SCHEMES: Final = ("hf", "s3", "gs", "az", "abfs", "ssh", "sftp", "memory")
"""Of places in a list, besides folders in one that is a file of this machine."""
TIMEOUT: Final = 20.0
_LINE: Final = re.compile(r"(\S{1,500})\s+([0-9a-f]{64})\s+([0-9a-f]{128})", re.ASCII)


class Members:
    """The list at `word`, a file or an https:// URL."""

    def __init__(self, word: str, context: TransportContext) -> None:
        self.word = word
        self._context = context

    def read(self) -> dict[str, str]:
        """The place of each member, by its address. Lines that are not signed are left out. Raises `OSError`."""
        if self.word.startswith(("http://", "https://")):
            try:
                ends, data = time.monotonic() + TIMEOUT, b""
                with urllib.request.urlopen(self.word, timeout=TIMEOUT) as answer:
                    while len(data) < MAX_BYTES and (some := answer.read1(MAX_BYTES - len(data))):
                        data += some
                        if time.monotonic() > ends:
                            raise TimeoutError(f"it takes more than {TIMEOUT:.0f} s")
            except Exception as error:  # of the HTTP client
                raise OSError(f"{self.word} cannot be read: {in_brief(error)}") from error
        else:
            data = read_regular(Path(self.word), MAX_BYTES)
        found: dict[str, str] = {}
        for line in data.decode("utf-8", "replace").splitlines():
            if len(found) < MOST and (parts := _LINE.fullmatch(line.strip())) and self._may_name(parts[1]):
                place, key, signature = parts.groups()
                if verify(bytes.fromhex(key), bytes.fromhex(signature), self._signed(place)):
                    found[self._context.secret.address(key)] = place
        return found

    def line(self, place: str) -> str:
        """By which others add this node."""
        identity = self._context.identity
        if re.search(r"\s", place) or not self._may_name(place):
            raise UserError(f"a list of members cannot name {place}: {', '.join(f'{s}://' for s in SCHEMES[:-1])}")
        return f"{place} {identity.id} {identity.sign(self._signed(place)).hex()}"

    def _signed(self, place: str) -> bytes:
        return DOMAIN + self._context.secret.context + f"{self._context.swarm}\0{place}".encode()

    def _may_name(self, place: str) -> bool:
        scheme, url, _ = place.partition("://")
        if not url:
            return Path(self.word).is_file()
        return scheme in SCHEMES and "::" not in place and not re.match(r"[^/]*:[^/]*@", url)  # no password
