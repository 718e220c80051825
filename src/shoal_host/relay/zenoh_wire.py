"""Reads Zenoh's protocol, to count what a connection asks of a relay.

    reader = Reader()
    reader.batch(data)    # the cost of what `data` asks, where 1 is a declaration; raises `Unreadable`
    reader.cost           # the same, also of what was read before a batch became unreadable
    reader.declarations   # what holds of what it has declared

The reader is strict: what no client of Zenoh 1.10 with shoal's configuration sends is `Unreadable`, so that the reader
never takes a message for shorter or longer than Zenoh does. Above all, nobody but a client may connect: relays tell
each other which relays there are (Zenoh's "OAM"), and one such message with a large number in it ends a relay.
"""

VERSION = 9  # of the protocol
MAX_KEY = 512  # characters of a key expression
MAX_CHUNKS = 9  # of a key expression, between its slashes: matching costs time with each, and `**` with their product
QUERY = 0.4  # the cost of a query
PART = 1 << 15  # bytes of a batch with a part of a message that goes on: Zenoh keeps 65,535 for each until it ends
FULL = 262_144  # bytes that cost as much as a declaration
EVERYTHING = "**"
STAR = 10.0  # the cost of each star in what is declared
INTEREST = 0x19
"""A kind of declarations. The others are 0, a key expression; 2, a subscriber; 4, a queryable; 6, a token."""
MAX_WAIT = 60_000  # milliseconds that a query may stay open
_TIMEOUT = 0x26
_NUMBERS = {0x21, 0x25, _TIMEOUT, 0x31, 0x34}
"""Extensions that are numbers, by their header: quality of service, budget, timeout, priority, target."""
_RESPONDER = 0x43

_INIT, _OPEN, _CLOSE, _KEEP_ALIVE, _FRAME, _FRAGMENT = range(1, 7)
_RESPONSE_FINAL, _RESPONSE, _REQUEST, _PUSH, _DECLARE = range(0x1A, 0x1F)
_PUT, _QUERY, _REPLY = 1, 3, 4
_FINAL = 0x1A
_MORE, _MIDDLE, _LOW = 0x80, 0x40, 0x20
"""The flags of a header. The first says that extensions follow, or further ones."""
_FIRST, _DROP = 0x02, 0x03
_CLIENT = 2
"""How a side of a connection takes part: 0 is a relay, 1 a node that others connect to."""


class Unreadable(Exception):  # noqa: N818 (it is what the bytes are)
    """No session of a client sends these bytes."""


class NoClient(Unreadable):
    """Another relay, or a node that others connect to."""


class Declarations:
    """All that one connection has declared, and what that costs: Zenoh limits neither the number of declarations of a
    session nor their rate, and each costs a walk over all others."""

    def __init__(self) -> None:
        self.cost = 0.0
        """Of all declarations that hold."""
        self.over: list[str] = []
        """Key expressions of interests that hold no more; Zenoh keeps them in its tree."""
        self._held: dict[tuple[int, int], str] = {}
        """Key expressions of what holds, by kind and number."""
        self._new: set[tuple[int, int]] = set()
        """What the batch in hand has declared. Zenoh knows nothing of it until the batch has been read."""
        self._brief: list[str] = []
        """Key expressions of interests that begin and end in the batch in hand."""

    def begin(self, kind: int, number: int, key: str) -> float:
        """A declaration begins; its cost. Of two declarations with one number Zenoh forgets the first, without cleaning
        up."""
        id = kind, number
        if self._held.get(id, key) != key:
            raise Unreadable("two declarations with one number")
        if id not in self._held:
            self._new.add(id)
            self._held[id] = key
            self.cost += cost(key)
        return cost(key)

    def end(self, kind: int, number: int) -> None:
        """A declaration ends."""
        id = kind, number
        key = self._held.pop(id, None)
        if key is not None:
            self.cost -= cost(key)
            if kind == INTEREST:
                (self._brief if id in self._new else self.over).append(key)

    def once(self, key: str) -> float:
        """An interest in what exists now, and in nothing later; its cost."""
        self._brief.append(key)
        return cost(key)

    def end_batch(self, whole: bool) -> None:
        """The batch in hand ends. If it could not be read as a `whole`, Zenoh never sees any of it."""
        if whole:
            self.over += self._brief
        else:
            for id in self._new & self._held.keys():
                self.end(*id)
        self._new.clear()
        self._brief.clear()

    def close(self) -> None:
        """The connection is over, and so is all that it declared."""
        for id in list(self._held):
            self.end(*id)


def cost(key: str) -> float:
    """Of a declaration of a key expression."""
    return 1 + STAR * key.count("*")


class Reader:
    """Reads what one side of a connection sends. Not thread-safe."""

    def __init__(self) -> None:
        self._data, self._at = b"", 0
        """A field that is cut short raises `IndexError`, or moves `_at` past the end."""
        self.batches = 0
        """The first two are the handshake."""
        self.messages = 0
        """Messages in the last batch."""
        self.cost = 0.0
        """What the last batch asks for, as far as it was read."""
        self.declarations = Declarations()
        self._keys: dict[int, str] = {}
        self._next: dict[int, int] = {}
        """The number of the next fragment of each unfinished message: one may be sent reliably, one otherwise."""

    def batch(self, data: bytes) -> float:
        """Reads one batch, without the two bytes of its length. Returns the cost of what it asks of a relay."""
        self._data, self._at = data, 0
        self.batches += 1
        self.cost, self.messages = 0.0, 0
        try:
            self._read()
        except Unreadable:
            self.declarations.end_batch(whole=False)
            raise
        self.declarations.end_batch(whole=True)
        return self.cost

    def _read(self) -> None:
        """Reads the batch in hand."""
        try:
            if self.batches <= 2:
                self._greet()
                return
            self.cost = len(self._data) / FULL
            while self._at < len(self._data):
                self.messages += 1
                self.cost += self._message()
        except IndexError:
            raise Unreadable("a message ends too early") from None
        if self._at > len(self._data):
            raise Unreadable("a message ends too early")

    def _greet(self) -> None:
        if self._data[0] & 0x1F != (_INIT if self.batches == 1 else _OPEN):
            raise Unreadable("no handshake of Zenoh")
        if self.batches == 2:
            if self._data[0] & _MORE:  # one of them makes a client a part of the network of relays
                raise Unreadable("a handshake with extensions")
        elif self._data[1] != VERSION:
            raise Unreadable(f"version {self._data[1]} of Zenoh's protocol")
        elif self._data[2] & 3 != _CLIENT:
            raise NoClient("a relay, or a node that others connect to")

    def _message(self) -> float:
        """Reads one message; its cost."""
        header = self._byte()
        kind = header & 0x1F
        if kind == _PUSH:
            self._key_of_data(header)
            self._extensions(header)
            self._put()
        elif kind in (_FRAME, _RESPONSE_FINAL):
            self._number()
            self._extensions(header)
        elif kind in (_KEEP_ALIVE, _CLOSE):
            self._at += kind == _CLOSE
            self._extensions(header)
        elif kind == _DECLARE:
            return self._declare(header)
        elif kind == INTEREST:
            return self._interest(header)
        elif kind == _FRAGMENT:
            self._fragment(header)
        elif kind in (_REQUEST, _RESPONSE):
            self._number()
            self._key(header)
            self._extensions(header, responder=kind == _RESPONSE)
            if kind == _REQUEST:
                self._query(self._byte())
                return QUERY
            if self._byte() != _REPLY:
                raise Unreadable("no reply")
            self._put()
        else:
            raise Unreadable(f"a message of kind {kind}")
        return 0

    def _fragment(self, header: int) -> None:
        """A part of a message that is larger than a batch. No declaration is, and none has a priority: for each of the
        eight a session could leave two messages unfinished, which Zenoh keeps. After a gap in the numbers Zenoh takes
        a part for the first one of another message."""
        number = self._number()
        first = False
        more = header & _MORE
        while more:
            extension = self._byte()
            more = extension & _MORE
            if extension & 0x7F == _FIRST:
                first = True
            elif extension & 0x7F != _DROP:
                raise Unreadable("a fragment with a priority, or an unknown extension")
        lane = header & _LOW
        due = self._next.pop(lane, None)
        wrapped = number == 0 and due is not None and due & (due - 1) == 0  # numbers begin anew at a power of two
        if first or (number != due and not wrapped):
            self._first_fragment(self._byte())
        if header & _MIDDLE:
            if len(self._data) < PART:
                raise Unreadable("a small part of a message that goes on")
            self._next[lane] = number + 1
        self._at = len(self._data)

    def _first_fragment(self, header: int) -> None:
        """The beginning of a message in fragments, up to its key expression."""
        kind = header & 0x1F
        if kind == _RESPONSE:
            self._number()
            self._key(header)
        elif kind == _PUSH:
            self._key_of_data(header)
        else:
            raise Unreadable("a declaration or query in fragments")
        if self._at > len(self._data):
            raise Unreadable("a key expression in fragments")

    def _declare(self, header: int) -> float:
        if header & _LOW:
            self._number()
        self._extensions(header)
        body = self._byte()
        kind = body & 0x1F
        if kind == _FINAL:
            self._extensions(body)
            return 0
        if kind > 7:
            raise Unreadable("a declaration of an unknown kind")
        number = self._number() & (0xFFFF if kind < 2 else 0xFFFFFFFF)
        if kind % 2:
            self._extensions(body)
            self.declarations.end(kind - 1, number)
            if kind == 1:
                self._keys.pop(number, None)
            return 1
        text = self._key(body if kind else body | _MIDDLE)
        self._extensions(body)
        if not kind:
            self._keys[number] = text
        return self.declarations.begin(kind, number, text)

    def _interest(self, header: int) -> float:
        number, mode = self._number() & 0xFFFFFFFF, header & (_MIDDLE | _LOW)
        text = ""
        if mode:
            options = self._byte()
            text = self._key(options) if options & 0x10 else EVERYTHING
        self._extensions(header)
        if not mode:
            self.declarations.end(INTEREST, number)
            return 1
        if mode & _MIDDLE:
            return self.declarations.begin(INTEREST, number, text)
        return self.declarations.once(text)

    def _query(self, header: int) -> None:
        if header & ~(_LOW | _MIDDLE) != _QUERY:
            raise Unreadable("no query, or one with extensions")
        self._at += bool(header & _LOW)
        if header & _MIDDLE:
            self._skip()

    def _put(self) -> None:
        """Data, without the time, encoding and extensions that it could have."""
        if self._byte() != _PUT:
            raise Unreadable("data of another kind")
        self._skip()

    def _key(self, flags: int) -> str:
        """A key expression, together with the one that it continues, which this side has declared. One that the relay
        has declared is continued by nobody: what would be matched would have no bounds."""
        scope = self._number()
        if scope and not flags & _MIDDLE:
            raise Unreadable("a key expression that continues one of the relay's")
        text = self._keys.get(scope, "") if scope else ""
        if flags & _LOW:
            size = self._number()
            text += self._data[self._at : self._at + size].decode(errors="replace")
            self._at += size
        if not text:
            raise Unreadable("no key expression, or an unknown one")
        repeated = text.count("**") > 1 or text.count("$*") > 1  # then time grows with a power of the length
        if len(text) > MAX_KEY or text.count("/") >= MAX_CHUNKS or repeated:
            raise Unreadable("a key expression that is too long or matches too much")
        return text

    def _key_of_data(self, flags: int) -> None:
        """The key expression under which data is published. Zenoh takes one with stars; shoal sends none."""
        if "*" in self._key(flags):
            raise Unreadable("data for several keys")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _number(self) -> int:
        data, at = self._data, self._at
        byte = data[at]
        at += 1
        value, shift = byte & 0x7F, 7
        while byte & 0x80:
            if shift > 56:
                raise Unreadable("a number that is too large")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        self._at = at
        return value

    def _skip(self) -> None:
        """Skips bytes that follow their number."""
        size = self._number()
        self._at += size

    def _extensions(self, header: int, responder: bool = False) -> None:
        """Skips what a message says of its transport: numbers, and, where it may, who answers. Zenoh reads the latter
        without a look at the length that the extension gives; so does this, and refuses it where they do not agree."""
        more = header & _MORE
        while more:
            byte = self._byte()
            more, extension = byte & _MORE, byte & 0x7F
            if extension in _NUMBERS:
                if self._number() > MAX_WAIT and extension == _TIMEOUT:
                    raise Unreadable("a query that stays open for too long")
            elif extension == _RESPONDER and responder:
                end = self._number() + self._at
                length = 1 + (self._byte() >> 4)  # of an id
                self._at += length
                self._number()
                if self._at != end:
                    raise Unreadable("an extension with a wrong length")
            else:
                raise Unreadable(f"an extension {extension:#x}")
