"""What a node remembers of each key that it had something from."""

from __future__ import annotations

from collections import Counter
from typing import Any

from shoal.config import AdmissionConfig
from shoal.swarm.limits import Bucket, Seen

KNOWN = 16
"""Rollouts that a key must have had admitted to count as known."""
STRIKES = 5.0
"""Broken rules, less one for each minute, after which a key is muted."""
PEERS = 4096
"""Keys that are remembered."""
ROUNDS = 256
"""Rounds of a key of which it is remembered what came; older ones count as replays."""
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
        self.refused: Counter[str] = Counter()
        self.offences = 0
        self.mutes = 0
        self.muted_until = 0.0
        self._strikes, self._struck = 0.0, now

    @property
    def known(self) -> bool:
        return self.admitted >= KNOWN

    @property
    def weight(self) -> float:
        """How readily what it sends is sampled: 1 without offences, and never more."""
        return (1 + self.admitted) / (1 + self.admitted + 5 * self.offences)

    def leaps(self, round: int, now: float) -> bool:
        """Whether `round` is further ahead than time allows."""
        return self.latest is not None and round > self.latest + LEAP * (1 + max(0.0, now - self.last))

    def came(self, round: int, slot: int, now: float) -> None:
        self.seen.add(round, slot)
        self.latest = max(round, self.latest if self.latest is not None else round)
        self.last = now

    def offend(self, now: float) -> None:
        """It broke a rule that no honest program breaks. Often enough, and it is muted, each time for twice as long."""
        self.offences += 1
        self._strikes = max(0.0, self._strikes - max(0.0, now - self._struck) / 60) + 1
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
            "refused": self.refused,
            "offences": self.offences,
            "mutes": self.mutes,
            "muted_until": self.muted_until,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.seen.floor, self.seen.rounds = state["seen"]
        self.latest, self.last, self.admitted = state["latest"], state["last"], state["admitted"]
        self.refused = Counter(state["refused"])
        self.offences, self.mutes, self.muted_until = state["offences"], state["mutes"], state["muted_until"]


class Peers:
    """The keys that are remembered. None is forgotten while a replay of what it sent could still pass for new."""

    def __init__(self, config: AdmissionConfig) -> None:
        self._config = config
        self.by_key: dict[bytes, Peer] = {}

    def get(self, key: bytes, now: float) -> Peer | None:
        """The record of `key`, a new one if need be; None if there is no room for another."""
        if key not in self.by_key:
            if len(self.by_key) >= PEERS:
                self._forget(now)
            if len(self.by_key) >= PEERS:
                return None
            self.by_key[key] = Peer(self._config, now)
        return self.by_key[key]

    def _forget(self, now: float) -> None:
        horizon = now - 2 * self._config.max_seconds
        self.by_key = {k: p for k, p in self.by_key.items() if p.last > horizon or p.muted_until > now}

    def state(self) -> dict[bytes, Any]:
        return {key: peer.state() for key, peer in self.by_key.items()}

    def restore(self, state: dict[bytes, Any], now: float) -> None:
        self.by_key = {}
        for key, kept in state.items():
            peer = self.by_key[key] = Peer(self._config, now)
            peer.restore(kept)
