"""A node offers its last rollouts to peers who ask, and hands them out again.

    shoal/<swarm>/open/offers/<shard>/<id>             the answer is a signed offer: the digests of its last rollouts
    shoal/<swarm>/open/offers/<shard>/<id>?want=...    the answers are the rollouts with these digests, as first sent

Nodes find peers by their offers. A node that missed rollouts asks for them by their digests: when it starts, after a
loss and after a reconnection. Anybody may answer under any key expression. So a receiver believes an offer only if it
is signed by the key in the key expression, and a rollout only if it has the digest that was asked for."""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.admission.bounded import Bucket
from shoal.identity.keys import Identity
from shoal.transports.zenoh.key_expressions import Keys
from shoal.wire.signed import Envelope, SignedMessage, is_signed, read_message, sign_message

SCHEMA_VERSION = 1
DOMAIN = b"shoal offer v1\0"
MAX_BYTES = 1024  # of an offer
CACHE = 32  # own rollouts that are kept and offered, for peers that join late or missed some
HISTORY = 16  # rollouts that a node asks a new neighbour for
DIGEST = 8  # bytes of a digest; it tells the rollouts of one node apart, and proves nothing
SEPARATOR = "."  # between the digests in a question
RENEWED = 30.0  # seconds after which an offer is signed anew
RATE, BURST = 200.0, 400.0  # questions answered per second, and at once
SENT_RATE, SENT_BURST = 2e6, 8e6  # bytes of rollouts handed out again per second, and at once


class Offer(SignedMessage, frozen=True):
    """What a node says that it has."""

    recent: Annotated[bytes, Meta(max_length=CACHE * DIGEST)]
    """Digests of its last rollouts, one after the other, the oldest first."""

    @property
    def digests(self) -> list[bytes]:
        return [self.recent[n : n + DIGEST] for n in range(0, len(self.recent), DIGEST)]


_offers = msgspec.msgpack.Decoder(Offer)


def digest_of(data: bytes) -> bytes:
    """The digest of a message as it crosses the network."""
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


def seal_offer(keys: Keys, identity: Identity, recent: Sequence[bytes], now: float) -> bytes:
    """The bytes of an offer of the rollouts with these digests."""
    offer = Offer(SCHEMA_VERSION, keys.swarm, identity.public, now, b"".join(recent))
    data = sign_message(DOMAIN + keys.secret.context, offer, identity)
    return keys.secret.lock(keys.offers(identity.id), data)


def read_offer(keys: Keys, key: str, data: bytes) -> tuple[Offer, Envelope] | None:
    """The offer in `data`, which came under the key expression `key`; its time and its signature are still to be
    checked. None unless it is of this swarm and under its own sender's key expression."""
    plain = keys.secret.unlock(key, data) if len(data) <= MAX_BYTES else None
    read = None if plain is None else read_message(plain, _offers, keys.swarm, SCHEMA_VERSION)
    if read is None:
        return None
    offer, _ = read
    return read if not len(offer.recent) % DIGEST and keys.offers(offer.id) == key else None


def is_genuine(keys: Keys, offer: Offer, envelope: Envelope) -> bool:
    """Whether the sender of an offer that `read_offer` has read has signed it."""
    return is_signed(DOMAIN + keys.secret.context, offer, envelope)


class OfferedRollouts:
    """A node's last rollouts as they were sent, and the answers to peers who ask for them.

    Costs are bounded, whoever asks. Not thread-safe, except for `put`.
    """

    def __init__(self, keys: Keys, identity: Identity, clock: Callable[[], float] = time.time) -> None:
        self._keys, self._identity, self._clock = keys, identity, clock
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=CACHE)
        self._offer, self._signed_at, self._offered = b"", -RENEWED, tuple[bytes, ...]()
        self._questions = Bucket(RATE, BURST, clock())
        self._bytes = Bucket(SENT_RATE, SENT_BURST, clock())

    def put(self, data: bytes) -> None:
        self._kept.append((digest_of(data), data))

    def answer(self, want: str) -> list[bytes]:
        """The replies to a question with this value of `want`; an empty one asks for the offer."""
        now = self._clock()
        if not self._questions.take(now):
            return []
        kept = tuple(self._kept)
        if not want:
            recent = tuple(digest for digest, _ in kept)
            if recent != self._offered or abs(now - self._signed_at) >= RENEWED:
                self._offer = seal_offer(self._keys, self._identity, recent, now)
                self._offered, self._signed_at = recent, now
            return [self._offer]
        wanted = set(want.split(SEPARATOR)) if len(want) <= CACHE * (2 * DIGEST + 1) else set[str]()
        found = [data for digest, data in kept if digest.hex() in wanted]
        return [data for data in found if self._bytes.take(now, len(data))]
