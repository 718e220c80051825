"""When a run keeps a checkpoint: after so many rounds, or as often as 5 % of its time allows.

    saving = Saving("auto", expected_bytes=3 * 10**9)
    if saving.is_due(round):
        with saving.timed():
            folder.checkpoint(round, save)

The last round has a checkpoint whatever this says. When there is one changes no figure of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

SHARE: Final = 0.05
"""Of a run's time, at most, that "auto" spends on checkpoints."""
SPEED: Final = 300e6
"""Bytes a second: what the first checkpoint is expected to take. Later ones take as long as the last."""


class Saving:
    """The checkpoints of one process's part of a run, and their seconds."""

    def __init__(
        self, every: int | Literal["auto"], expected_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`every`: rounds; 0: none at all. "auto": by time."""
        self.every = every
        self.seconds = 0.0
        """Of all checkpoints so far."""
        self._last = expected_bytes / SPEED
        self._clock = clock
        self._start = clock()
        self._told = 0.0

    @property
    def is_long(self) -> bool:
        """Whether the next one is expected to take more than a second."""
        return self._last > 1

    def is_due(self, round: int) -> bool:
        """Whether there should be a checkpoint after `round`. With "auto" there is one if it and the run's
        last one, which always comes, together take at most `SHARE` of the time."""
        if self.every != "auto":
            return self.every > 0 and round % self.every == 0
        return self.seconds + 2 * self._last <= SHARE * (self._clock() - self._start)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around the writing of a checkpoint."""
        start = self._clock()
        yield
        self._last = self._clock() - start
        self.seconds += self._last

    def unreported_seconds(self) -> float:
        """The seconds since the last call."""
        seconds, self._told = self.seconds - self._told, self.seconds
        return seconds
