"""A swarm in a place: its nodes share through files, and need not be there at the same time.

shoal join /mnt/shared                              a folder that all nodes see
shoal join s3://bucket/folder                       any URL that fsspec can write to
shoal join lagoon.members hf://datasets/me/lagoon   a list of members, and the place that this node writes to

publish -> outbox on this disk -> writing thread -> a file, every few seconds or minutes
files -> reading thread -> deliver
"""

import hashlib
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final

from shoal.config.sections import NetworkConfig
from shoal.errors import UserError
from shoal.identity.keys import identity_path
from shoal.transports.base import Channel, Presence, Transport, TransportContext
from shoal_extras.places.members import Members
from shoal_extras.places.outbox import FULL, Outbox
from shoal_extras.places.reader import SLOWEST, Place, Reader
from shoal_extras.places.store import Store, open_store, reason

HERE: Final = 900.0  # seconds after its last file for which a node counts as there
DAYS: Final = 30  # for which own files stay
UNSAVED: Final = 256  # messages that wait in memory while this machine's disk takes none
REMOVED: Final = 20  # own files that are removed in an hour, in which the Hub takes 128 commits


class PlaceTransport(Transport):
    """Raises `UserError` for words that name no place. A place may go away and come back."""

    def __init__(self, network: NetworkConfig, context: TransportContext) -> None:
        super().__init__(network, context)
        self.check(network)
        self._reader = Reader(context, self.dropped)
        self._members: Members | None = None
        self._places: dict[str, Place] = {}
        self._hint = ""
        self._own = self._find_places(network.connect)
        self._keep = network.keep_mb * 1_000_000
        where = f"{self._own.name} {context.prefix} {context.address}".encode()
        self._folder = identity_path().parent / "outbox" / hashlib.blake2b(where, digest_size=8).hexdigest()
        self._outbox: Outbox | None = None
        self._unsaved: deque[tuple[Channel, bytes]] = deque(maxlen=UNSAVED)
        self._lock = threading.Lock()  # of these two
        self._sealed = self._wrote = self._pruned = -1e9
        self._failures, self._retry = 0, 0.0
        self._full = self._unsent = ""
        self._closed, self._wake = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"shoal-place-{name}", daemon=True)
            for name, work in (("read", self._read), ("write", self._write))
        ]
        for thread in self._threads:
            thread.start()

    @classmethod
    def check(cls, network: NetworkConfig) -> None:
        words = network.connect
        if len(words) != 1 + (len(words) > 1 and _lists_members(words[0])):
            given = ", ".join(words) or "none"
            raise UserError(f"name one place, or a list of members and this node's own place; given: {given}")
        if not _lists_members(words[-1]):
            open_store(words[-1])

    def publish(self, channel: Channel, data: bytes) -> None:
        with self._lock:
            self._unsaved.append((channel, data))
            self._save()

    def presence(self) -> Presence:
        now, places = time.time(), list(self._places.values())
        recent = HERE + 2 * self._own.every
        there = sorted(address for address, [at] in list(self._reader.heard.items()) if now - at < recent)
        away = [place.trouble for place in places if place.trouble]
        warning = self._full or self._unsent or self._hint or self._reader.oddity(places)
        nobody = f"nobody else has added anything to {self._own.name} of late"
        trouble = (away or [self._full or self._unsent or nobody])[0]
        return Presence(len(there), tuple(there), len(places) - len(away), trouble, warning)

    def need(self, live: int, wanted: int) -> None:
        self._reader.ask(4 * wanted - live)
        self._wake.set()

    def credit(self, id: str) -> None:
        self._reader.credit(self.context.secret.address(id))

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(2.0)

    def _save(self) -> None:
        """Puts on disk what was published. The lock is held."""
        try:
            self._outbox = self._outbox or Outbox(self._folder, self.context.address)
            while self._unsaved:
                self._outbox.add(*self._unsaved[0])
                self._unsaved.popleft()
            self._full = ""
        except OSError as error:
            self._full = f"what this node shares waits in memory: {self._folder} cannot be written: {reason(error)}"

    def _write(self) -> None:
        while not self._closed.wait(0.2):
            self._write_what_waits()
        self._write_what_waits(ending=True)

    def _write_what_waits(self, ending: bool = False) -> None:
        now = time.monotonic()
        try:
            with self._lock:
                self._save()
                if not (box := self._outbox):
                    return
                interval = max(self._own.every, min(60.0, len(self._reader.heard) / 20))  # all add some twenty a second
                due = not self._failures and now - self._sealed >= interval  # else few files, full ones
                if ending or due or box.size >= FULL:
                    box.seal(time.time())
                    self._sealed = now
            if ending or now >= self._retry:
                for name, data in box.sealed(time.time()):
                    if now - self._wrote < self._own.pause:
                        break
                    self._own.write(f"{self.context.prefix}/{name.path}", data)
                    box.sent(name)
                    self._wrote = now
                self._unsent, self._failures = "", 0
            if box.lost:
                self.dropped["outbox"] = box.lost
            if now - self._pruned > 3600 and not ending:
                self._pruned = now
                for name in box.surplus(time.time() - DAYS * 86_400, self._keep)[:REMOVED]:
                    self._own.remove(f"{self.context.prefix}/{name.path}")
                    box.forget(name)
        except OSError as error:
            self._failures = min(self._failures + 1, 9)
            self._retry = now + min(max(SLOWEST / 10, self._own.every), self._own.every * 2**self._failures)
            self._unsent = f"{self._own.name} cannot be written: {reason(error)}; what this node shares waits here"
        except Exception:
            self.fault("writing to the place")

    def _read(self) -> None:
        listed = time.monotonic()
        while not self._closed.is_set():
            try:
                if self._members and time.monotonic() - listed > SLOWEST:
                    listed = time.monotonic()
                    self._read_members(self._members)
                places = sorted(self._places.values(), key=lambda place: (place.failures > 0, place.due))
                for place in places[: 1 + sum(not place.failures for place in places)]:  # one that is away
                    if not self._closed.is_set():
                        self._reader.look(place)
                self._reader.feed()
            except Exception:
                self.fault("reading the place")
            self._wake.wait(min(1.0, self._own.every))
            self._wake.clear()

    def _find_places(self, words: list[str]) -> Store:
        """The store that this node writes to; it fills in those that it reads. Raises `UserError`."""
        if not _lists_members(words[0]):
            store = open_store(words[0])
            self._places[""] = Place(store, self.context.prefix)
            return store
        self._members = Members(words[0], self.context)
        try:
            own = self._read_members(self._members)
        except OSError as error:
            raise UserError(f"the list of members cannot be read: {reason(error)}") from error
        if len(words) == 1 and not own:
            raise UserError(f"{words[0]} does not have this node: name its own place, too, as hf://datasets/YOU/NAME")
        if len(words) > 1 and own != words[-1]:
            own = words[-1]
            self._hint = f"others do not read this node yet: add this line to {words[0]}: {self._members.line(own)}"
        return open_store(own)

    def _read_members(self, members: Members) -> str:
        """Reads who is there now; this node's own place, if it is in the list."""
        listed = members.read()
        own = listed.pop(self.context.address, "")
        for address, word in listed.items():
            if address not in self._places:
                try:
                    self._places[address] = Place(open_store(word), self.context.prefix, address)
                except UserError:
                    self.dropped["member"] += 1
        for address in self._places.keys() - listed.keys():
            del self._places[address]
        return own


def _lists_members(word: str) -> bool:
    """Whether a word is meant as a list of members, not as a place."""
    return word.startswith(("https://", "http://")) or word.endswith(".members") or Path(word).is_file()
