"""A relay that lies: a process of Zenoh routers, one for each node, and what it does to all that passes between them.

python hostile_relay.py MODE PORT...     drop, delay, reorder, replay, forge, swap or honest
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import zenoh

ELSEWHERE = zenoh.Locality.REMOTE
HELD = 0.4
"""Seconds by which messages are delayed."""


def router(port: str) -> zenoh.Session:
    config: dict[str, Any] = {"mode": "router", "listen": {"endpoints": [f"tcp/127.0.0.1:{port}"]}}
    config["scouting"] = {"multicast": {"enabled": False}, "gossip": {"enabled": False}}
    return zenoh.open(zenoh.Config.from_json5(json.dumps(config)))


class Side:
    """What one node is told."""

    def __init__(self, mode: str, session: zenoh.Session, others: list[zenoh.Session]) -> None:
        self.mode, self.session, self.others, self.chance = mode, session, others, random.Random(1)
        self.held: deque[tuple[float, str, bytes]] = deque()
        self.told: deque[tuple[str, bytes]] = deque(maxlen=64)
        self.keep = [other.declare_subscriber("shoal/**", self.heard, allowed_origin=ELSEWHERE) for other in others]
        self.answers = session.declare_queryable("shoal/**", self.asked, allowed_origin=ELSEWHERE)

    def heard(self, sample: Any) -> None:
        """A message of another node."""
        for key, data in self.changed(str(sample.key_expr), sample.payload.to_bytes()):
            if self.mode in ("delay", "reorder"):
                self.held.append((time.monotonic(), key, data))
            else:
                self.session.put(key, data)

    def asked(self, query: Any) -> None:
        """A question of this node to another: the answers are changed, too."""
        threading.Thread(target=self.answer, args=(query,), daemon=True).start()

    def answer(self, query: Any) -> None:
        selector = str(query.selector)
        if self.mode == "swap":
            selector = selector.replace("shoal/lagoon/", "shoal/reef/", 1)
        with query:
            for other in self.others:
                for reply in other.get(selector, timeout=2.0, allowed_destination=ELSEWHERE):
                    if reply.ok:
                        for key, data in self.changed(str(reply.ok.key_expr), reply.ok.payload.to_bytes()):
                            query.reply(key, data)

    def changed(self, key: str, data: bytes) -> Iterator[tuple[str, bytes]]:
        if self.mode == "swap":  # what is said in one swarm is told in the other
            here, there = ("lagoon", "reef") if "shoal/reef/" in key else ("reef", "lagoon")
            yield key.replace(f"shoal/{there}/", f"shoal/{here}/", 1), data
            return
        if self.mode == "drop" and self.chance.random() < 0.5:
            return
        yield key, data
        if self.mode == "replay":
            self.told.append((key, data))
            yield from self.chance.choices(self.told, k=8)
        if self.mode == "forge":
            at = self.chance.randrange(len(data))
            yield key, data[:at] + bytes([data[at] ^ 1 << self.chance.randrange(8)]) + data[at + 1 :]
            yield key, data[:at]
            yield key[:-64] + f"{self.chance.getrandbits(256):064x}", data
            self.told.append((key, data))
            yield key, self.chance.choice(self.told)[1]

    def release(self) -> None:
        """Lets go what was held."""
        count = len(self.held)
        if self.mode == "reorder" and count < 4 and count and time.monotonic() - self.held[0][0] < HELD:
            return
        if self.mode == "delay":
            count = sum(time.monotonic() - at > HELD for at, *_ in list(self.held))
        some = [self.held.popleft() for _ in range(count)]
        for _, key, data in reversed(some) if self.mode == "reorder" else some:
            self.session.put(key, data)


def main() -> None:
    mode, *ports = sys.argv[1:]
    sessions = [router(port) for port in ports]
    sides = [Side(mode, one, [other for other in sessions if other is not one]) for one in sessions]
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
        for side in sides:
            side.release()


if __name__ == "__main__":
    main()
