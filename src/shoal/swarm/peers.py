"""What a node remembers of each key that it had something from."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

from shoal.config.swarm import AdmissionConfig
from shoal.swarm.limits import Bucket, Seen

PERIOD = 600.0
"""Seconds of a period: however much a key sends in one, it counts once towards being known."""
KNOWN = 12
"""Periods with a useful rollout after which a key is known: two hours at least."""
FUTURE = 60.0
"""Seconds that a maker's clock may be ahead."""
STRIKES = 5.0
"""Broken rules, less one for each minute, after which a key is muted."""
PEERS, STRANGERS = 4096, 1024
"""Keys that are remembered, and how many of them may be strangers, of whom nothing was admitted yet."""
ROUNDS = 256
"""Rounds of a key of which it is remembered what came; older ones count as replays."""
BEHIND = 64
"""Rounds before the first one heard of a key that may still come."""
LEAP = 64
"""Rounds that a key may run ahead of its last one, and in each second since: who could name any round at once could
choose among any number of questions."""


class Peer:
    """One key: what it sent, what became of it, and whether it is listened to."""

    def __init__(self, config: AdmissionConfig, now: float) -> None:
        self._config = config
        self.bucket = Bucket(config.peer_rate, 4 * config.peer_rate, now)
        self.seen = Seen(ROUNDS)
        self.latest: int | None = None
        self.last = now
        self.admitted = 0
        self.periods = 0
        """Periods in which a useful rollout was admitted."""
        self._period = -1
        """The last of these."""
        self.refused: Counter[str] = Counter()
        self.offences = 0
        self.mutes = 0
        self.muted_until = 0.0
        self._strikes, self._struck = 0.0, now

    @property
    def known(self) -> bool:
        return self.periods >= KNOWN

    @property
    def weight(self) -> float:
        """How readily what it sends is sampled: 1 without offences, and never more."""
        return (1 + self.admitted) / (1 + self.admitted + 5 * self.offences)

    def begin(self, round: int, now: float) -> None:
        """Takes `round` for where the key stands, if it is new or all that it sent before is too old to come again."""
        if self.latest is None or now - self.last > self._config.max_seconds + FUTURE:
            self.seen = Seen(ROUNDS)
            self.seen.floor = round - BEHIND - 1
            self.latest = round

    def leaps(self, round: int, now: float) -> bool:
        """Whether `round` is further ahead than time allows."""
        return self.latest is not None and round > self.latest + LEAP * (1 + max(0.0, now - self.last))

    def came(self, round: int, slot: int, now: float) -> None:
        self.seen.add(round, slot)
        self.latest = max(round, self.latest if self.latest is not None else round)
        self.last = now

    def admit(self, useful: bool, now: float) -> None:
        """A rollout of it was admitted. `useful`: there is something to learn from it, and an answer has a reward."""
        self.admitted += 1
        period = int(now // PERIOD)
        if useful and period > self._period:
            self._period = period
            self.periods += 1

    def offend(self, now: float, strikes: float) -> None:
        """It broke a rule that no honest program breaks. Often enough, and it is muted, each time for twice as long."""
        self.offences += 1
        self._strikes = max(0.0, self._strikes - max(0.0, now - self._struck) / 60) + strikes
        self._struck = now
        if self._strikes >= STRIKES:
            self.muted_until = now + self._config.mute_seconds * 2**self.mutes
            self.mutes = min(self.mutes + 1, 8)
            self._strikes = 0.0

    def state(self) -> dict[str, Any]:
        """What must outlive the process: a replay must be known as one, and the muted stay muted."""
        return {
            "seen": [self.seen.floor, self.seen.rounds],
            "latest": self.latest,
            "last": self.last,
            "admitted": self.admitted,
            "periods": [self.periods, self._period],
            "refused": self.refused,
            "offences": self.offences,
            "mutes": self.mutes,
            "muted_until": self.muted_until,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.seen.floor, self.seen.rounds = state["seen"]
        self.latest, self.last, self.admitted = state["latest"], state["last"], state["admitted"]
        self.periods, self._period = state["periods"]
        self.refused = Counter(state["refused"])
        self.offences, self.mutes, self.muted_until = state["offences"], state["mutes"], state["muted_until"]


class Peers:
    """The keys that are remembered. There is always room for a new one: the stranger that is remembered for longest
    goes first, and among the others the newcomer that was not heard for longest."""

    def __init__(self, config: AdmissionConfig) -> None:
        self._config = config
        self.by_key: OrderedDict[bytes, Peer] = OrderedDict()
        """The one heard last stands last."""
        self._strangers: OrderedDict[bytes, None] = OrderedDict()

    def get(self, key: bytes, now: float) -> Peer:
        """The record of `key`, a new one if need be."""
        peer = self.by_key.get(key)
        if peer is None:
            peer = self.by_key[key] = Peer(self._config, now)
            self._strangers[key] = None
            if len(self._strangers) > STRANGERS:
                oldest, _ = self._strangers.popitem(last=False)
                del self.by_key[oldest]
        self.by_key.move_to_end(key)
        return peer

    def admit(self, key: bytes, useful: bool, now: float) -> None:
        """A rollout of `key` was admitted: it is no stranger any more."""
        self.get(key, now).admit(useful, now)
        if key in self._strangers:
            del self._strangers[key]
            if len(self.by_key) - len(self._strangers) > PEERS - STRANGERS:
                others = [k for k in self.by_key if k not in self._strangers and k != key]
                newcomers = (k for k in others if not self.by_key[k].known)
                del self.by_key[next(newcomers, others[0])]

    def state(self) -> dict[bytes, Any]:
        return {key: peer.state() for key, peer in self.by_key.items()}

    def restore(self, state: dict[bytes, Any], now: float) -> None:
        self.by_key.clear()
        self._strangers.clear()
        for key, kept in state.items():
            peer = self.by_key[key] = Peer(self._config, now)
            peer.restore(kept)
            if not peer.admitted:
                self._strangers[key] = None
