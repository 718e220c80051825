"""Whose clock is wrong, by the times that peers sign.

clocks = Clocks()
clocks.note(key, signed - time.time())
clocks.warning      # "a clock is wrong: that of swift-otter is about 10 min ahead of this machine's"
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from statistics import median_low
from typing import Final

from shoal.admission.bounded import Recent
from shoal.identity.keys import name_of
from shoal.wire.signed import AHEAD

LAST: Final = 8  # messages of each peer of which the latest time counts: some are under way for a while
PEERS: Final = 256
HEARD: Final = 300.0  # seconds for which a message counts
FOUND: Final = 60.0  # seconds in which a peer that was just found may send what it made before
NAMED: Final = 3


class Clocks:
    """By how much peers' clocks are ahead of this machine's. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: one that nobody sets."""
        self._clock = clock
        self._found: Recent[bytes, float] = Recent(PEERS, clock)
        self._heard: Recent[bytes, deque[tuple[float, float]]] = Recent(PEERS, lambda: deque(maxlen=LAST))
        """Of each key: when a message came, and by how much its time was ahead."""
        self._lock = threading.Lock()

    def note(self, key: bytes, ahead: float, stored: bool = False) -> None:
        """A message that `key` has signed is from `ahead` seconds after now; negative: before. `stored`: it may have
        been kept for a while before it came."""
        with self._lock:
            if not stored or ahead > -AHEAD or self._clock() - self._found[key] > FOUND:
                self._heard[key].append((self._clock(), ahead))

    @property
    def warning(self) -> str:
        """Whose clock is more than a minute off, by about how much; empty if none is."""
        since = self._clock() - HEARD
        with self._lock:
            heard = {key: [ahead for at, ahead in last if at > since] for key, last in self._heard.items()}
        ahead = {key: max(values) for key, values in heard.items() if values}
        off = {key: value for key, value in ahead.items() if abs(value) > AHEAD}
        if not off:
            return ""
        usual = median_low(off.values())
        by = f"about {abs(usual) / 60:.0f} min {'ahead of' if usual > 0 else 'behind'} this machine's"
        alike = [key for key, value in off.items() if abs(value - usual) < AHEAD]
        if len(alike) > max(1, len(ahead) / 2):
            return f"the clock of this machine seems to be wrong: those of {len(alike)} of {len(ahead)} peers are {by}"
        names = ", ".join(map(name_of, alike[:NAMED])) + (", …" if len(alike) > NAMED else "")
        return f"a clock is wrong: that of {names} is {by}"
