"""Counts messages and bytes."""

import threading
import time
from collections import deque
from typing import Any

WINDOW = 10  # seconds over which rates are measured


class Meter:
    """Messages and bytes in total, and per second over the last `WINDOW` seconds. Thread-safe."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self._seconds: deque[list[int]] = deque(maxlen=WINDOW + 1)
        self._lock = threading.Lock()

    def count(self, size: int) -> None:
        """Counts a message of `size` bytes."""
        with self._lock:
            self.messages += 1
            self.bytes += size
            second = int(time.monotonic())
            if not self._seconds or self._seconds[-1][0] != second:
                self._seconds.append([second, 0, 0])
            self._seconds[-1][1] += 1
            self._seconds[-1][2] += size

    def status(self) -> dict[str, Any]:
        with self._lock:
            since = int(time.monotonic()) - WINDOW
            recent = [entry for entry in self._seconds if entry[0] > since]
            return {
                "messages": self.messages,
                "bytes": self.bytes,
                "messages_per_second": sum(entry[1] for entry in recent) / WINDOW,
                "bytes_per_second": sum(entry[2] for entry in recent) / WINDOW,
            }
