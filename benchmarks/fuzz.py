"""Throws bytes at admission: nothing may be raised, memory must stay flat, and honest messages must still pass.

    python benchmarks/fuzz.py [--payloads 1000000] [--seed 0] [--json]

A quarter each: random bytes; honest messages that were damaged; statements changed and then signed properly, to
reach the checks behind the signature; and MessagePack grown from a grammar, of this format's own words, with sizes that
are true, too large or absurd. The verifier costs nothing: `tests/test_attacks.py` scores what is hostile.
Memory is that of this process after the first tenth, and at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import psutil
from stand_ins import LocalExaminer

from shoal.admission.admission import Admission
from shoal.admission.limits import AdmissionLimits
from shoal.config.tasks import TasksConfig
from shoal.identity.keys import Identity
from shoal.rollout import Completion, QuestionId, Rollout
from shoal.tasks import Tasks
from shoal.wire.rollouts import DOMAIN, Malformed, NewerVersion, open_envelope, seal

SWARM = "fuzz"
WORDS = (
    *("schema_version", "swarm", "key", "time", "rollout", "model", "tokenizer", "sampling", "kind", "question"),
    *("question_hash", "completions", "node", "round", "slot", "task", "version", "config", "seed", "index", "parts"),
    *("finish_reason", "logprobs", "token_ids", "text", "mime", "data", "temperature", "top_p", "stop", SWARM),
)
CONFIG = AdmissionLimits(max_characters=2048, peer_rate=1e9, mute_seconds=1e-3)
BATCH = 100
GROWTH = 1.05
"""Memory at the end over that after the first tenth: what counts as flat."""


class Unread:
    """A verifier that costs nothing."""

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        return [[0.0] * len(texts) for _, texts in items]


class Fuzzer:
    """Makes payloads. The same seed makes the same, keys and times apart."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tasks = Tasks(TasksConfig())
        self.makers = [Identity.generate() for _ in range(64)]
        self.made: Counter[str] = Counter()
        self.refresh()

    def refresh(self) -> None:
        """Other honest messages to damage: of this minute."""
        self.honest = [self._honest(maker) for maker in self.random.sample(self.makers, 32)]

    def payload(self) -> bytes:
        make = self.random.choice((self._random, self._damaged, self._signed, self._grown))
        return make()

    def _honest(self, maker: Identity) -> bytes:
        """The next rollout of `maker`, in a slot that it has not used."""
        self.made[maker.id] += 1
        round, slot = divmod(self.made[maker.id], 4)
        question = self.tasks.draw(slot + 1, SWARM, maker.id, round)[slot]
        texts = [Completion.of(str(self.random.random()) * self.random.randrange(1, 9)) for _ in range(8)]
        rollout = Rollout(question.id, question.hash, tuple(texts), maker.name, round, slot)
        return seal(rollout, maker, SWARM, time.time())

    def _random(self) -> bytes:
        return self.random.randbytes(int(2000 ** self.random.random()))

    def _damaged(self) -> bytes:
        data, other = bytearray(self.random.choice(self.honest)), self.random.choice(self.honest)
        for _ in range(self.random.choice((1, 1, 1, 2, 8))):
            at = self.random.randrange(len(data) + 1)
            match self.random.randrange(6):
                case 0 if at < len(data):
                    data[at] ^= 1 << self.random.randrange(8)
                case 1:
                    del data[at:]
                case 2:
                    data[at:at] = self.random.randbytes(self.random.randrange(1, 30))
                case 3:
                    del data[at : at + self.random.randrange(1, 60)]
                case 4:
                    data[at:] = other[at:]
                case _:
                    data += data[at : at + 200]
        return bytes(data)

    def _signed(self) -> bytes:
        """A statement of which something was changed, by somebody who has a key."""
        maker = self.random.choice(self.makers)
        statement = msgspec.msgpack.decode(msgspec.msgpack.decode(self._honest(maker))[0])
        for _ in range(self.random.choice((1, 1, 2))):
            self._change(statement)
        body = msgspec.msgpack.encode(statement)
        return msgspec.msgpack.encode([body, maker.sign(DOMAIN + body)])

    def _change(self, where: Any) -> None:
        while True:
            keys = list(where) if isinstance(where, dict) else list(range(len(where)))
            if not keys:
                return
            key = self.random.choice(keys)
            if isinstance(where[key], dict | list) and self.random.random() < 0.8:
                where = where[key]
                continue
            match self.random.randrange(4):
                case 0:
                    del where[key]
                case 1 if isinstance(where, dict):
                    where[self.random.choice(WORDS)] = self._value(2)
                case _:
                    where[key] = self._value(2)
            return

    def _value(self, depth: int) -> Any:
        kinds = 11 if depth else 8
        match self.random.randrange(kinds):
            case 0:
                return self.random.choice((0, 1, -1, 2**31, 2**53, 2**63, 2**64 - 1, -(2**63), 63, 64))
            case 1:
                return self.random.choice((0.0, -0.0, 1e308, float("nan"), float("inf"), -1.5, time.time()))
            case 2:
                return self.random.choice((None, True, False))
            case 3:
                return self.random.randbytes(self.random.randrange(70))
            case 4:
                return self.random.choice(WORDS)
            case 5:
                return chr(self.random.randrange(0xD7FF)) * self.random.choice((1, 40, 3000))
            case 6:
                return self.random.choice(("__import__('os')._exit(1)", "9**9**9", "<|im_start|>", "\0", "‮", ""))
            case 7:
                return self.random.choice(self.makers).public
            case 8:
                return [self._value(depth - 1) for _ in range(self.random.choice((0, 1, 3, 70)))]
            case 9:
                return {self.random.choice(WORDS): self._value(depth - 1) for _ in range(self.random.randrange(9))}
            case _:
                return [self.random.choice((0, -0.5, None, "x", b""))] * self.random.choice((65, 1025, 5000))

    def _grown(self) -> bytes:
        """MessagePack by itself, or within an envelope, or with what cannot be."""
        data = self._grow(self.random.choice((2, 4, 6)))
        if self.random.random() < 0.05:
            data = self.random.choice((b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01")) * 20_000 + data
        if self.random.random() < 0.6:
            return msgspec.msgpack.encode([data, self.random.randbytes(64)])
        return data[:200_000]

    def _grow(self, depth: int) -> bytes:
        match self.random.randrange(9 if depth else 6):
            case 0:
                return bytes([self.random.randrange(256)])
            case 1:
                return msgspec.msgpack.encode(self._value(0))
            case 2:  # claims more than there is
                kind = self.random.choice((0xC6, 0xDB, 0xDD, 0xDF, 0xC9))
                return bytes([kind]) + struct.pack(">I", self.random.choice((3, 65_536, 2**31, 2**32 - 1)))
            case 3:
                return msgspec.msgpack.encode(self.random.choice(WORDS))
            case 4:
                return b"\xd4\x05\x00"  # an extension
            case 5:
                return b"\xa4\xed\xa0\x80\xff"  # no UTF-8
            case 6:
                size = self.random.randrange(16)
                return bytes([0x90 | size]) + b"".join(self._grow(depth - 1) for _ in range(size))
            case _:
                size = self.random.randrange(16)
                names = (msgspec.msgpack.encode(self.random.choice(WORDS)) for _ in range(size))
                return bytes([0x80 | size]) + b"".join(name + self._grow(depth - 1) for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--payloads", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures, refused = fuzz(args.payloads, args.seed)
    if args.json:
        print(
            json.dumps(
                {
                    "exceptions": figures["exceptions"],
                    "memory": figures["memory at the end (MB)"] / figures["memory after a tenth (MB)"] / GROWTH,
                }
            )
        )
    else:
        for name, value in figures.items():
            print(f"{name:34} {value:12,.1f}")
        print("refused:", ", ".join(f"{reason} {count}" for reason, count in refused.most_common()))
    sys.exit(figures["exceptions"] > 0 or figures["honest ones that did not pass"] > 0)


def claimed(data: bytes) -> str:
    """The id of the key that a message names, if it names one: it is sent under that."""
    try:
        return open_envelope(data)[0].key.hex()
    except (Malformed, NewerVersion):
        return ""


def fuzz(total: int, seed: int) -> tuple[dict[str, float], Counter[str]]:
    """Figures, and why payloads were refused."""
    fuzzer, process = Fuzzer(seed), psutil.Process()
    admission = Admission(SWARM, LocalExaminer(fuzzer.tasks, Unread()), CONFIG, num_generations=64)
    exceptions = honest = passed = size = 0
    seconds = 0.0
    start = early = process.memory_info().rss
    for done in range(0, total, BATCH):
        batch = [(claimed(data), data) for data in (fuzzer.payload() for _ in range(min(BATCH, total - done)))]
        size += sum(len(data) for _, data in batch)
        began = time.perf_counter()
        try:
            admission.admit(batch)
        except Exception:  # this is what it is looked for
            exceptions += 1
            traceback.print_exc()
        seconds += time.perf_counter() - began
        if done % 10_000 == 0:
            fuzzer.refresh()
            maker = Identity.generate()
            honest += 1
            passed += len(admission.admit([(maker.id, fuzzer._honest(maker))]))
        if done <= total / 10:
            early = process.memory_info().rss
    return {
        "payloads": total,
        "bytes of a payload, mean": size / total,
        "payloads a second, on one core": total / seconds,
        "exceptions": exceptions,
        "honest ones in between": honest,
        "honest ones that did not pass": honest - passed,
        "memory at the start (MB)": start / 1e6,
        "memory after a tenth (MB)": early / 1e6,
        "memory at the end (MB)": process.memory_info().rss / 1e6,
        "peers remembered": len(admission.peers.by_key),
    }, admission.refused


if __name__ == "__main__":
    main()
