"""What a connection has declared to a relay, and what that costs.

    declarations = Declarations()
    declarations.begin(kind, number, key)    # its cost, where 1 is a declaration without stars
    declarations.end(kind, number)
    declarations.end_batch(whole=True)       # the batch that holds these has been read
    declarations.cost                        # of all that hold

Zenoh limits neither the number of declarations of a session nor their rate, and each costs a walk over all others.
"""

STAR = 10.0  # the cost of each star in what is declared
INTEREST = 0x19
"""A kind of declarations. The others are 0, a key expression; 2, a subscriber; 4, a queryable; 6, a token."""


class Unreadable(Exception):  # noqa: N818 (it is what the bytes are)
    """No session of a client sends these bytes."""


class Declarations:
    """All that one connection has declared. Not thread-safe."""

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
