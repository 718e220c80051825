"""`shoal archive PLACE FOLDER`: keeps what a swarm shares.

Whatever comes is checked as at a node: who signed it, the limits of its key, and in the sandbox its question and its
rewards. What is false is left out. What is of a task that is not installed is kept without prompt and rewards.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import chain
from math import inf
from pathlib import Path
from typing import Final

from shoal.admission.bounded import FairQueue
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.membership.settings import secret_of
from shoal.transports.base import Channel, TransportContext, key_of
from shoal.transports.create import create_transport
from shoal.wire.rollouts import MAX_BYTES
from shoal_extras.archive.format import PART_BYTES, ROW_GROUP, Row, begin, chunks, parts_of, write_part
from shoal_extras.archive.reader import Reader, withdrawn
from shoal_extras.archive.verify import Marks, start_of, weigh
from shoal_extras.places.files import BadFile, FileName
from shoal_extras.places.listing import Listing
from shoal_extras.places.members import Members
from shoal_extras.places.reader import TRIES
from shoal_extras.places.store import Store, Unfinished, open_store, read_messages

EVERY: Final = 300.0  # seconds after which a file is written, if there is anything to write
LOOK: Final = 1.0  # seconds between two looks at a place
WAITING: Final = 128, 64 << 20  # messages of one node that wait, and bytes of all
HEARD: Final = 512  # nodes that are heard by a relay, at most: as many as one search finds
Message = tuple[str, bytes]
"""An address, and what came from it."""


class Keeper:
    """Keeps messages in an archive. Close it: what it has not written yet is written then."""

    def __init__(self, config: Config, archive: Path) -> None:
        self.archive, self.secret = archive, secret_of(config)
        self.kept, self.left_out = 0, Counter[str]()
        self._swarm = config.network.name
        self._rows: list[Row] = []
        self._size, self._written = 0, time.monotonic()
        begin(archive)
        self._gone = withdrawn([archive])
        self._marks = Marks()
        self._reader = Reader(start_of(config.tasks, self.secret.context))
        for name in parts_of(archive):
            for _, found in self._reader.pairs(archive, name):
                self._marks.add(found)

    def take(self, messages: Sequence[Message]) -> None:
        """Checks messages and keeps what is true. Writes when it is time."""
        new = {Row(data).id: (address, data) for address, data in messages}
        fresh = [(address, data) for id, (address, data) in new.items() if hash(id) not in self._marks.seen]
        for (address, data), found in zip(fresh, weigh(self._reader, [data for _, data in fresh]), strict=True):
            row = Row.made(data, found.question, found.rewards)
            reason = found.reason or ("not kept" if found.not_kept else "")
            if not reason:
                until, _ = self._gone.get((found.key, found.swarm), (-1.0, b""))
                foreign = found.swarm != self._swarm or self.secret.address(found.key.hex()) != address
                reason = "swarm or key" if foreign else "withdrawn" if found.time <= until else self._marks.add(found)
            if reason:
                self.left_out[reason] += 1
            else:
                self.kept += 1
                self._rows.append(row)
                self._size += len(data)
        if self._size > PART_BYTES or time.monotonic() - self._written > EVERY:
            self.write()

    def write(self) -> None:
        """Writes what was kept since the last time. Raises `UserError`."""
        rows = sorted(self._rows, key=lambda row: (row.opened().time, row.id))
        for chunk in chunks(iter(rows)):
            write_part(self.archive, chunk)
        self._rows, self._size, self._written = [], 0, time.monotonic()

    def close(self) -> None:
        try:
            self.write()
        finally:
            self._reader.__exit__()


def follow(config: Config, archive: Path, until: Callable[[], bool], on_progress: Callable[[Keeper], None]) -> Keeper:
    """Keeps what the swarm of `config` shares, of a place all that is there, until it is to end. Raises `UserError`."""
    with ExitStack() as stack:
        keeper = stack.enter_context(closing(Keeper(config, archive)))
        secret, name = keeper.secret, config.network.name
        inbox: FairQueue[bytes] = FairQueue(*WAITING)

        def arrived(channel: Channel, address: str, data: bytes) -> None:
            if channel == "rollouts" and len(data) <= MAX_BYTES:
                inbox.put(address, data, len(data))

        context = TransportContext(name, Identity.generate(), arrived, secret, MAX_BYTES, neighbours=HEARD)
        if config.network.carrier == "place":
            source = _of_place(config.network.connect, context)
        else:
            stack.enter_context(closing(create_transport(config.network, context)))
            source = _of_queue(inbox)
        while not until():
            locked = ((address, key_of(context.prefix, "rollouts", address), data) for address, data in next(source))
            plain = ((address, secret.unlock(key, data)) for address, key, data in locked)
            keeper.take([(address, data) for address, data in plain if data is not None])
            on_progress(keeper)
    return keeper


def _of_queue(inbox: FairQueue[bytes]) -> Iterator[list[Message]]:
    """What came since the last time; it waits a little."""
    while True:
        some: list[Message] = []
        while len(some) < ROW_GROUP and (taken := inbox.take(0.0 if some else 0.5)):
            inbox.charge(taken[0], 1e-3)
            some.append(taken)
        yield some


def _of_place(words: Sequence[str], context: TransportContext) -> Iterator[list[Message]]:
    """The messages in the files of a place, or of those of all members: the latest, all before, and what is new."""
    members = words[0].endswith(".members") or words[0].startswith("http") or Path(words[0]).is_file()
    try:
        places = Members(words[0], context).read() if members else {"": words[0]}
    except OSError as error:
        raise UserError(f"{words[0]} cannot be read: {error}") from error
    late, listings = dict[FileName, tuple[str, Store, int, float]](), list[tuple[str, Store, Listing]]()
    for only, word in places.items():
        with suppress(*[UserError] * bool(only)):  # a member's place that is none
            listings.append((only, store := open_store(word), Listing(store, context.prefix, inf)))
    while True:
        for only, store, listing in listings:
            with suppress(OSError):  # the place is away
                for file in chain(listing.look(time.time()), () if listing.done else listing.older()):
                    late[file] = only, store, 0, 0.0
            for file, (only, store, tries, at) in list(late.items()):
                if time.monotonic() < at:
                    continue
                try:
                    found = read_messages(store, context.prefix, file) if only in ("", file.address) else []
                except (BadFile, OSError) as error:
                    found = []
                    if isinstance(error, Unfinished | OSError) and tries < TRIES:  # it comes later
                        late[file] = only, store, tries + 1, time.monotonic() + 2**tries
                        continue
                del late[file]
                yield [(file.address, data) for channel, data in found if channel == "rollouts"]
        yield []
        time.sleep(LOOK if all(listing.done for _, _, listing in listings) else 0.0)
