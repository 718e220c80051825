"""What is read of places: the newest first, as much as the node's pool needs, and bounded whatever strangers write.

    reader = Reader(context)
    reader.look(place)          # lists what is new, and reads nothing
    reader.feed()               # reads and hands on as many messages as were asked for

Half of what is handed on is of nodes that brought something useful before, if they have it. Of a node, that is of a
name, its newest files wait to be read; the rest of a file waits until it is asked for, or another takes its room.
"""

import random
import time
from collections import Counter, deque
from contextlib import suppress
from typing import Final

from shoal.admission.bounded import Bucket, Recent, RecentKeys
from shoal.admission.limits import KEPT
from shoal.transports.base import Channel, TransportContext
from shoal.untrusted import printable
from shoal_extras.places.files import BadFile, FileName
from shoal_extras.places.listing import Listing
from shoal_extras.places.store import Store, Unfinished, read_messages, reason

NODES: Final = 4096  # nodes whose files may wait to be read
FILES: Final = 64  # of each of them
MAX_PASS: Final = 32 << 20  # bytes that are read between two looks
QUEUES: Final = 32  # files whose messages wait in memory; then the rest of the first one goes
EACH: Final = 30.0  # messages of one node that are handed on in a second: admission takes 40
FREE: Final = 256  # messages that are handed on after each look for those who do not say what they need
TRIES: Final = 10  # to read a file that is not all there; each time after twice as long
SLOWEST: Final = 300.0  # seconds between two looks at a place that is away, at most


class Place:
    """A store that is read. `only`: the address of the one node whose files count there."""

    def __init__(self, store: Store, prefix: str, only: str = "") -> None:
        self.store, self.only = store, only
        self.listing = Listing(store, prefix, KEPT)
        self.trouble = ""
        self.failures = 0
        self.due = 0.0
        """When it is looked at next, by the monotonic clock."""


class Reader:
    """Reads places on one thread; `ask` and `credit` are for any."""

    def __init__(self, context: TransportContext, dropped: Counter[str]) -> None:
        self._context, self._dropped = context, dropped
        self._unread: dict[str, list[tuple[FileName, Place]]] = {}
        """Files of each node, newer ones behind older ones once they are sorted."""
        self._queues: dict[str, deque[tuple[Channel, bytes]]] = {}
        """What was read and not handed on yet."""
        self._rates: Recent[str, Bucket] = Recent(NODES, lambda: Bucket(EACH, 2 * EACH, time.monotonic()))
        self._useful: RecentKeys[str] = RecentKeys(NODES // 8)
        self._unfinished: dict[FileName, tuple[Place, int, float]] = {}
        """How often each was tried, and when it is tried next."""
        self.heard: Recent[str, list[float]] = Recent(NODES, lambda: [0.0])
        """When the last file of each node was found or, if it is an old one, written."""
        self._asked, self._says = FREE, False
        self._left = MAX_PASS

    def ask(self, number: int) -> None:
        """The pool needs this many messages."""
        self._asked, self._says = min(2 * FREE, max(0, number)), True

    def credit(self, address: str) -> None:
        """One can learn from what this node sent."""
        self._useful.add(address)

    def look(self, place: Place) -> None:
        """Lists what is new there, if it is time to."""
        began = time.monotonic()
        if began < place.due:
            return
        try:
            for file in place.listing.look(time.time()):
                self._found(file, place, time.time() if place.due else file.time)
            if not self._unread and self._asked:
                for file in place.listing.older():
                    self._found(file, place, file.time)
            place.trouble, place.failures = "", 0
        except OSError as error:
            place.trouble = f"{place.store.name}: {reason(error)}"
            place.failures = min(place.failures + 1, 9)
        ended = time.monotonic()
        wait = min(max(SLOWEST / 10, place.store.every), place.store.every * 2**place.failures)
        place.due = ended + max(wait, 10 * (ended - began))  # a tenth of the time at most, whatever is there
        self._left = MAX_PASS
        self._asked = self._asked if self._says else FREE
        for file, (where, tries, at) in self._unfinished.items():
            if where is place and began >= at:
                self._unfinished[file] = place, tries, float("inf")
                self._unread.setdefault(file.address, []).append((file, place))

    def feed(self) -> None:
        """Hands on what was asked for."""
        waiting = list(self._unread.keys() | self._queues.keys())
        random.shuffle(waiting)
        useful = [address for address in waiting if address in self._useful]
        for addresses, share in ((useful, self._asked // 2), (waiting, self._asked)):
            left = min(share, self._asked)
            while left > 0 and addresses:
                turn, addresses = addresses[:left], addresses[left:]
                given = [address for address in turn if self._give(address)]
                addresses = addresses + given
                left -= len(given)
                self._asked -= len(given)

    def oddity(self, places: list[Place]) -> str:
        """What is strange there, in a line."""
        if late := list(self._unfinished):
            more = f" and {len(late) - 1} more" if len(late) > 1 else ""
            return f"a file is not all there yet (half-synchronised?): {late[0].name}{more}"
        for place in places:
            for hour, name in list(place.listing.foreign.items())[:1]:
                return f"{place.store.name} has files of other programs, which are left: {hour}/{printable(name, 80)}"
            if place.listing.ahead:
                return f"files in {place.store.name} are of a later day: is the clock of this machine wrong?"
        return ""

    def _found(self, file: FileName, place: Place, at: float) -> None:
        address = file.address
        if address == self._context.address or place.only not in ("", address):
            return
        if address not in self._unread and len(self._unread) >= NODES and address not in self._useful:
            self._dropped["too many nodes"] += 1
            return
        unread = self._unread.setdefault(address, [])
        unread.append((file, place))
        if len(unread) > 2 * FILES:
            unread.sort(key=lambda one: one[0])
            del unread[:FILES]
        self.heard[address][0] = max(self.heard[address][0], min(at, time.time()))

    def _give(self, address: str) -> bool:
        """Hands on the next message of a node; whether there was one that may go now."""
        while address not in self._queues and address in self._unread and self._left > 0:
            unread = self._unread[address]
            unread.sort(key=lambda one: one[0])
            file, place = unread.pop()
            if not unread:
                del self._unread[address]
            self._read(file, place)
        if address not in self._queues or not self._rates[address].take(time.monotonic()):
            return False
        channel, data = self._queues[address].popleft()
        if not self._queues[address]:
            del self._queues[address]
        self._context.deliver(channel, address, data)
        return True

    def _read(self, file: FileName, place: Place) -> None:
        tries = self._unfinished.pop(file, (place, 0, 0.0))[1]
        self._left -= 1 << 14  # for what cannot be read, too
        try:
            messages = read_messages(place.store, self._context.prefix, file)
        except Unfinished:
            self._left -= 1 << 20
            if tries < TRIES and len(self._unfinished) < NODES:
                self._unfinished[file] = place, tries + 1, time.monotonic() + place.store.every * 2**tries
            else:
                self._dropped["unfinished file"] += 1
        except BadFile:
            self._left -= 1 << 20
            self._dropped["bad file"] += 1
        except OSError as error:
            away = True
            with suppress(OSError):
                away = not any(place.store.names(self._context.prefix))
            if away:
                self._unread.setdefault(file.address, []).append((file, place))
                self._left = 0
            elif not isinstance(error, FileNotFoundError):  # else its node has removed it
                self._dropped["unreadable file"] += 1
        else:
            self._left -= sum(len(data) for _, data in messages)
            if messages:
                self._queues[file.address] = deque(messages)
            if len(self._queues) > QUEUES:
                del self._queues[next(iter(self._queues))]
