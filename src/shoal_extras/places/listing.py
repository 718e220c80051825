"""What is new in a place, by listing what may have changed since the last look: the cost grows with new files.

    listing = Listing(store, "shoal/lagoon/open", age=7 * 86400)
    for name in listing.look(time.time()): ...     # the files of the last hours; later on, what has come since
    for name in listing.older(): ...               # the files of the hour before those, and so on

What was found is remembered within bounds: a flood of names can make this node look at some files twice.
"""

import re
from collections.abc import Iterator
from typing import Final

from shoal.admission.bounded import Recent
from shoal_extras.places.files import FileName, hour_of, parse_name
from shoal_extras.places.store import Store

HOUR: Final = 3600.0
AHEAD: Final = 26 * HOUR
"""Seconds that the clock of a writer may be ahead or behind. What is of the future is refused, and its clock named."""
HOURS_NAME: Final = re.compile(r"\d{8}T\d{2}", re.ASCII)
HOURS: Final = 128  # folders of which is remembered what was found
NAMES: Final = 100_000  # of one folder, that are remembered


class Listing:
    """The files in the folder `prefix` of a store. `age`: seconds; older ones do not count."""

    def __init__(self, store: Store, prefix: str, age: float) -> None:
        self._store, self._prefix, self._age = store, prefix, age
        self._found: Recent[str, set[int]] = Recent(HOURS, set)
        """Hashes of the names that were found in each folder."""
        self._stamps: dict[str, tuple[float, bool]] = {}
        """The stamp of each folder when it was listed last, and whether it was listed twice with this one: a file may
        have come at the same instant."""
        self._older: list[str] | None = None
        """Hours that were there at the first look and are not listed yet, the latest at the end."""
        self._turn = 0
        self.ahead = False
        """Whether files are of a later day than this machine has."""
        self.foreign: dict[str, str] = {}
        """Folders with files that no node writes, and the name of one."""

    def look(self, now: float) -> Iterator[FileName]:
        """What has come since the last look; at the first one, the files of the last hours. Raises `OSError`."""
        first, recent, late, end = (hour_of(max(0.0, now + by)) for by in (-self._age, -2 * HOUR, -AHEAD, AHEAD))
        names = [name for name in self._store.names(self._prefix) if HOURS_NAME.fullmatch(name)]
        self.ahead = bool(names) and max(names) > end
        hours = sorted(name for name in names if first <= name <= end)
        old = [hour for hour in hours if hour < recent]
        if self._older is None:
            self._older = list(old)
            self._stamps = {hour: (stamp, True) for hour in old if (stamp := self._stamp(hour)) is not None}
        turns = [hour for hour in old if hour > late]
        self._turn += 1
        for hour in hours:
            stamp = self._stamp(hour)
            if stamp is None:  # a store that cannot say: the hours of late writers take turns
                if hour >= recent or (turns and hour == turns[self._turn % len(turns)]):
                    yield from self._new(hour)
                continue
            last, twice = self._stamps.get(hour, (None, False))
            if stamp != last or not twice:
                yield from self._new(hour)
                self._stamps[hour] = stamp, stamp == last

    @property
    def done(self) -> bool:
        """Whether no earlier hour is left."""
        return self._older == []

    def older(self) -> Iterator[FileName]:
        """The files of the latest hour that was not listed yet. Raises `OSError`."""
        if self._older:
            yield from self._new(self._older.pop())

    def _stamp(self, hour: str) -> float | None:
        return self._store.stamp(f"{self._prefix}/{hour}")

    def _new(self, hour: str) -> Iterator[FileName]:
        found = self._found[hour]
        self.foreign.pop(hour, None)
        try:
            names = list(self._store.names(f"{self._prefix}/{hour}"))
        except OSError:
            if self._stamp(hour) is None:
                raise
            names = ["(no folder)"]  # a link, a file, or one that nobody may read
        for name in names:
            if (file := parse_name(hour, name)) is None:
                if not name.startswith("."):
                    self.foreign[hour] = name
            elif (key := hash(name)) not in found:
                if len(found) < NAMES:
                    found.add(key)
                yield file
