"""Reads Zenoh's protocol, to count what a connection asks of a relay.

    reader = Reader()
    reader.batch(data)    # the cost of what `data` asks, where 1 is a declaration; raises `Unreadable`
    reader.cost           # the same, also of what was read before a batch became unreadable
    reader.declarations   # what holds of what it has declared

The reader is strict: what no client of Zenoh 1.10 with shoal's configuration sends is `Unreadable`, so that the reader
never takes a message for shorter or longer than Zenoh does. Above all, nobody but a client may connect: relays tell
each other which relays there are (Zenoh's "OAM"), and one such message with a large number in it ends a relay.
"""

from shoal_host.relay.zenoh_declarations import INTEREST, Declarations
from shoal_host.relay.zenoh_fields import MORE, Unreadable, ZenohFields

VERSION = 9  # of the protocol
MAX_KEY = 512  # characters of a key expression
MAX_CHUNKS = 9  # of a key expression, between its slashes: matching costs time with each, and `**` with their product
QUERY = 0.4  # the cost of a query
PART = 1 << 15  # bytes of a batch with a part of a message that goes on: Zenoh keeps 65,535 for each until it ends
FULL = 262_144  # bytes that cost as much as a declaration
EVERYTHING = "**"

_INIT, _OPEN, _CLOSE, _KEEP_ALIVE, _FRAME, _FRAGMENT = range(1, 7)
_RESPONSE_FINAL, _RESPONSE, _REQUEST, _PUSH, _DECLARE = range(0x1A, 0x1F)
_PUT, _DEL, _QUERY, _REPLY, _ERR = range(1, 6)
_FINAL = 0x1A
_MIDDLE, _LOW = 0x40, 0x20
"""Two of the three flags of a header."""
_FIRST, _DROP = 0x02, 0x03
_OF_RESPONSE = {0x43: "responder"}
_OF_PUT = {0x41: "source", 0x43: "bytes"}
_OF_DEL = {0x41: "source", 0x42: "bytes"}
_OF_QUERY = {0x41: "source", 0x43: "value", 0x45: "bytes"}
_OF_ERR = {0x41: "source"}
"""Extensions that are no numbers, by their header, and how Zenoh reads them."""
_CLIENT = 2
"""How a side of a connection takes part: 0 is a relay, 1 a node that others connect to."""


class NoClient(Unreadable):
    """Another relay, or a node that others connect to."""


class Reader(ZenohFields):
    """Reads what one side of a connection sends. Not thread-safe."""

    def __init__(self) -> None:
        super().__init__()
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
            if self._data[0] & MORE:  # one of them makes a client a part of the network of relays
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
            self._sample(self._byte())
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
            self._extensions(header, _OF_RESPONSE if kind == _RESPONSE else {})
            if kind == _REQUEST:
                self._query(self._byte())
                return QUERY
            self._response(self._byte())
        else:
            raise Unreadable(f"a message of kind {kind}")
        return 0

    def _fragment(self, header: int) -> None:
        """A part of a message that is larger than a batch. No declaration is, and none has a priority: for each of the
        eight a session could leave two messages unfinished, which Zenoh keeps. After a gap in the numbers Zenoh takes
        a part for the first one of another message."""
        number = self._number()
        first = False
        more = header & MORE
        while more:
            extension = self._byte()
            more = extension & MORE
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
            text = self._key(options, known=True) if options & 0x10 else EVERYTHING
        self._extensions(header)
        if not mode:
            self.declarations.end(INTEREST, number)
            return 1
        if mode & _MIDDLE:
            return self.declarations.begin(INTEREST, number, text)
        return self.declarations.once(text)

    def _query(self, header: int) -> None:
        if header & 0x1F != _QUERY:
            raise Unreadable("no query")
        self._at += bool(header & _LOW)
        if header & _MIDDLE:
            self._skip()
        self._extensions(header, _OF_QUERY)

    def _response(self, header: int) -> None:
        if header & 0x1F == _REPLY:
            self._at += bool(header & _LOW)
            self._extensions(header)
            self._sample(self._byte())
        elif header & 0x1F == _ERR:
            if header & _MIDDLE:
                self._encoding()
            self._extensions(header, _OF_ERR)
            self._skip()
        else:
            raise Unreadable("no reply")

    def _sample(self, header: int) -> None:
        kind = header & 0x1F
        if kind not in (_PUT, _DEL):
            raise Unreadable("neither put nor delete")
        if header & _LOW:  # a timestamp
            self._number()
            self._skip()
        if kind == _PUT and header & _MIDDLE:
            self._encoding()
        self._extensions(header, _OF_PUT if kind == _PUT else _OF_DEL)
        if kind == _PUT:
            self._skip()

    def _key(self, flags: int, known: bool = False) -> str:
        """A key expression, together with the declared one that it continues. If it continues one that the relay
        declared, only the rest is returned, or `Unreadable` raised where the whole must be `known`."""
        scope = self._number()
        text = self._keys.get(scope, "") if flags & _MIDDLE else ""
        if known and scope and not text:
            raise Unreadable("an interest in something unknown")
        if flags & _LOW:
            size = self._number()
            text += self._data[self._at : self._at + size].decode(errors="replace")
            self._at += size
        repeated = text.count("**") > 1 or text.count("$*") > 1  # then time grows with a power of the length
        if len(text) > MAX_KEY or text.count("/") >= MAX_CHUNKS or repeated:
            raise Unreadable("a key expression that is too long or matches too much")
        return text

    def _key_of_data(self, flags: int) -> None:
        """The key expression under which data is published. Zenoh takes one with stars; shoal sends none."""
        if "*" in self._key(flags):
            raise Unreadable("data for several keys")
