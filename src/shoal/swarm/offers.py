"""What a node has to give: it says so to whoever asks, and hands out its last rollouts again.

    shoal/<swarm>/open/offers/<shard>/<id>             the answer is a signed offer: the digests of its last rollouts
    shoal/<swarm>/open/offers/<shard>/<id>?want=...    the answers are those rollouts, as they were sent

Peers are found by their offers, and who missed rollouts asks for them by their digests: at the start, after a loss and
after a reconnection. Anybody may answer under any key, so a receiver believes an offer only with the signature of the
key that stands in the key expression, and a rollout only with the digest that it asked for.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from shoal.identity.keys import verify
from shoal.swarm.limits import Bucket
from shoal.swarm.neighbours import Keys
from shoal.swarm.wire import Envelope

SCHEMA_VERSION = 1
DOMAIN = b"shoal offer v1\0"
MAX_BYTES = 1024
"""Of an offer."""
CACHE = 32
"""Own rollouts that are kept and offered, for those who join late or missed some."""
HISTORY = 16
"""Rollouts that a new neighbour is asked for."""
DIGEST = 8
"""Bytes of a digest. It tells one node's rollouts apart, and proves nothing."""
OLD, AHEAD = 900.0, 60.0
"""Seconds that an offer may be behind this clock, and ahead of it: clocks differ."""
SEPARATOR = "."
"""Between the digests in a question."""
RENEWED = 30.0
"""Seconds after which an offer is signed anew."""
RATE, BURST = 200.0, 400.0
"""Questions answered in a second, and at once."""
GIVEN, GIVEN_BURST = 2e6, 8e6
"""Bytes of rollouts handed out again in a second, and at once."""


class Signing(Protocol):
    """Who signs: an `identity.Identity`."""

    @property
    def public(self) -> bytes: ...

    @property
    def id(self) -> str: ...

    def sign(self, data: bytes) -> bytes: ...


class Offer(msgspec.Struct, frozen=True):
    """What a node says that it has."""

    schema_version: int
    swarm: Annotated[str, Meta(min_length=1, max_length=64)]
    key: Annotated[bytes, Meta(min_length=32, max_length=32)]
    time: Annotated[float, Meta(ge=0, le=2**53)]
    """Seconds since 1970 by its clock."""
    recent: Annotated[bytes, Meta(max_length=CACHE * DIGEST)]
    """Digests of its last rollouts, one after the other, the oldest first."""

    @property
    def id(self) -> str:
        return self.key.hex()

    @property
    def digests(self) -> list[bytes]:
        return [self.recent[n : n + DIGEST] for n in range(0, len(self.recent), DIGEST)]


_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(Envelope)
_offers = msgspec.msgpack.Decoder(Offer)


def digest_of(data: bytes) -> bytes:
    """The digest of a message as it crosses the network."""
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


def seal_offer(keys: Keys, who: Signing, recent: Sequence[bytes], now: float) -> bytes:
    body = _encoder.encode(Offer(SCHEMA_VERSION, keys.swarm, who.public, now, b"".join(recent)))
    data = _encoder.encode(Envelope(body, who.sign(DOMAIN + keys.secret.context + body)))
    return keys.secret.lock(keys.offers(who.id), data)


def open_offer(keys: Keys, key: str, data: bytes, now: float) -> Offer | None:
    """The offer in `data`, if it is one of this swarm, fresh, signed, and came under its maker's own key expression;
    None for anything else. What is cheap to check goes first."""
    if len(data) > MAX_BYTES:
        return None
    plain = keys.secret.unlock(key, data)
    if plain is None:
        return None
    try:
        envelope = _envelopes.decode(plain)
        offer = _offers.decode(envelope.statement)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    known = offer.schema_version == SCHEMA_VERSION and offer.swarm == keys.swarm and len(offer.recent) % DIGEST == 0
    if not known or not now - OLD <= offer.time <= now + AHEAD or keys.offers(offer.id) != key:
        return None
    signed = DOMAIN + keys.secret.context + envelope.statement
    return offer if verify(offer.key, envelope.signature, signed) else None


class Shelf:
    """A node's last rollouts as they were sent, and the answers to those who ask for them. Bounded, whoever asks.
    Not thread-safe but for `put`, which another thread may call."""

    def __init__(self, keys: Keys, who: Signing, clock: Callable[[], float] = time.time) -> None:
        self._keys, self._who, self._clock = keys, who, clock
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=CACHE)
        self._offer, self._offered, self._of = b"", -RENEWED, tuple[bytes, ...]()
        self._questions = Bucket(RATE, BURST, clock())
        self._bytes = Bucket(GIVEN, GIVEN_BURST, clock())

    def put(self, data: bytes) -> None:
        self._kept.append((digest_of(data), data))

    def answer(self, want: str) -> list[bytes]:
        """What to reply to a question with this value of `want`: the offer if it is empty."""
        now = self._clock()
        if not self._questions.take(now):
            return []
        kept = tuple(self._kept)
        if not want:
            recent = tuple(digest for digest, _ in kept)
            if recent != self._of or abs(now - self._offered) >= RENEWED:
                self._offer, self._of, self._offered = seal_offer(self._keys, self._who, recent, now), recent, now
            return [self._offer]
        wanted = set(want.split(SEPARATOR)) if len(want) <= CACHE * (2 * DIGEST + 1) else set[str]()
        found = [data for digest, data in kept if digest.hex() in wanted]
        return [data for data in found if self._bytes.take(now, len(data))]
