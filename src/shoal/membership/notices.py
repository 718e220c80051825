"""Reads the notices that come, on a thread of its own. It keeps the last `WAITING` that were not read yet."""

import threading
import time
from collections.abc import Callable
from typing import Final

from shoal.admission.bounded import Newest
from shoal.identity.secret import OVERHEAD, Secret
from shoal.transports.base import key_of
from shoal.wire.notices import MAX_BYTES, Notice, open_notice

WAITING: Final = 512


class NoticeReader:
    """Decrypts and checks notices. Close it."""

    def __init__(self, swarm: str, secret: Secret, on_notice: Callable[[Notice], None]) -> None:
        """`on_notice` is called on a thread of its own with each notice of this swarm that its key has signed."""
        self._swarm, self._secret, self._on_notice = swarm, secret, on_notice
        self._inbox: Newest[tuple[str, bytes]] = Newest(WAITING)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="shoal-notices", daemon=True)
        self._thread.start()

    def put(self, address: str, data: bytes) -> None:
        """A notice came under this address. It is quick, since another thread checks it."""
        if len(data) <= MAX_BYTES + OVERHEAD:
            self._inbox.put([(address, data)])

    def close(self) -> None:
        self._closed.set()
        self._thread.join(2.0)

    def _read(self) -> None:
        while not self._closed.is_set():
            for address, data in self._inbox.take(0.2):
                plain = self._secret.unlock(key_of(self._secret.prefix(self._swarm), "notices", address), data)
                notice = plain and open_notice(plain, self._swarm, time.time(), self._secret.context)
                if notice:
                    self._on_notice(notice)
