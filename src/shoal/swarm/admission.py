"""All that stands between bytes from a stranger and the pool.

    admission = Admission("reef", scorer, AdmissionConfig())
    admitted = admission.admit([("link", data), ...])    # scored by this node, ready for the pool
    admission.refused                                    # Counter({"age": 3, "seed": 1})

The order is that of cost: what is cheap to refuse goes first, and until the signature is checked nothing is counted
against the key that a message claims. A stranger can only say "here are texts for that question": the question is made
again, and it must be the one that the sender's key, round and slot give, so that nobody chooses easy or poisoned ones.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from shoal.config import AdmissionConfig
from shoal.protocols import DrawnTasks
from shoal.rollout import Question, Rollout, Scored, hash_of
from shoal.scoring import Scorer
from shoal.swarm.identity import name_of
from shoal.swarm.limits import Bucket, Recent
from shoal.swarm.peers import Peer, Peers
from shoal.swarm.wire import Malformed, NewerVersion, Statement, check_signature, open_envelope

FILE = "admission.msgpack"
FUTURE = 60.0
"""Seconds that a maker's clock may be ahead."""
LINKS = 1024
"""Links of which the rate is remembered."""
TEXTS = 8192
"""Rollouts of which the texts are remembered, to know duplicates."""

MARKERS = re.compile(
    r"<\|[^|<>\s]{1,40}\|>"  # ChatML, Llama 3, Phi, ...
    r"|<\/?s>|\[\/?INST\]|<<\/?SYS>>"  # Llama 2, Mistral
    r"|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk)>"  # Gemma
    r"|<｜[^<>\s]{1,40}｜>",  # DeepSeek
    re.IGNORECASE,
)
"""What chat templates put between turns. No policy says it, since its decoding leaves special tokens out."""


class Reason(StrEnum):
    """Why a message was refused, in the order of the checks."""

    size = "size"
    rate = "rate"
    malformed = "malformed"
    version = "version"
    swarm = "swarm"
    age = "age"
    future = "future"
    signature = "signature"
    crowded = "crowded"
    muted = "muted"
    replay = "replay"
    round = "round"
    quota = "quota"
    name = "name"
    task = "task"
    seed = "seed"
    question = "question"
    held_out = "held out"
    completions = "completions"
    markers = "markers"
    duplicate = "duplicate"


OFFENCES = {Reason.name, Reason.seed, Reason.question, Reason.held_out, Reason.completions, Reason.markers}
"""What no honest program sends; the rest may be chance, another configuration or the network."""


class Refused(Exception):  # noqa: N818 (it is an answer, not a fault)
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Admission:
    """Admits and scores. `admit` is called by one thread; others may read, `save` and `load`."""

    def __init__(
        self,
        swarm: str,
        scorer: Scorer,
        tasks: DrawnTasks,
        config: AdmissionConfig,
        clock: Callable[[], float] = time.time,
        context: bytes = b"",
    ) -> None:
        """`context`: what a private swarm's messages are signed along with (`secret.Secret`)."""
        self.swarm = swarm
        self.context = context
        self.scorer = scorer
        self.tasks = tasks
        self.config = config
        self.clock = clock
        self.refused: Counter[str] = Counter()
        self.admitted = 0
        self.peers = Peers(config)
        now = clock()
        self._links: Recent[str, Bucket] = Recent(LINKS, lambda: Bucket(config.link_rate, 4 * config.link_rate, now))
        self._newcomers = Bucket(config.newcomer_rate, 4 * config.newcomer_rate, now)
        self._texts: Recent[str, None] = Recent(TEXTS, lambda: None)
        self._books = threading.Lock()  # held for moments, never while scoring: a checkpoint must not wait

    def admit(self, messages: Sequence[tuple[str, bytes]]) -> list[Scored]:
        """What of `messages`, each with the link that it came by, may go into the pool. Nothing is raised for what
        strangers send."""
        known: list[tuple[Rollout, Question]] = []
        makers: list[Peer] = []
        for link, data in messages:
            with self._books:
                try:
                    statement, peer = self.attribute(link, data)
                except Refused as refusal:
                    self.refused[refusal.reason] += 1
                    continue
            try:
                known.append((statement.rollout, self.examine(statement)))
                makers.append(peer)
            except Refused as refusal:
                self._blame(peer, refusal.reason)
        admitted = []
        for scored, peer in zip(self.scorer.rewarded(known), makers, strict=True):
            if self._is_new(scored):
                peer.admitted += 1
                self.admitted += 1
                admitted.append(Scored(scored.rollout, scored.question, scored.rewards, peer.weight))
            else:
                self._blame(peer, Reason.duplicate)
        return admitted

    def attribute(self, link: str, data: bytes) -> tuple[Statement, Peer]:
        """Whose message it is, if it is new and within its maker's rights. This is all that a flood costs."""
        config, now = self.config, self.clock()
        _require(len(data) <= config.max_bytes, Reason.size)
        _require(self._links[link].take(now), Reason.rate)
        try:
            statement, envelope = open_envelope(data)
        except NewerVersion:
            raise Refused(Reason.version) from None
        except Malformed:
            raise Refused(Reason.malformed) from None
        rollout = statement.rollout
        _require(0 <= rollout.slot < config.max_slots and 0 <= rollout.round < 2**53, Reason.malformed)
        _require(statement.swarm == self.swarm, Reason.swarm)
        _require(statement.time >= now - config.max_seconds, Reason.age)
        _require(statement.time <= now + FUTURE, Reason.future)
        _require(check_signature(envelope, statement, self.context), Reason.signature)
        peer = self.peers.get(statement.key, now)
        if peer is None:
            raise Refused(Reason.crowded)
        for allowed, reason in (
            (lambda: now >= peer.muted_until, Reason.muted),
            (lambda: not peer.seen.has(rollout.round, rollout.slot), Reason.replay),
            (lambda: not peer.leaps(rollout.round, now), Reason.round),
            (lambda: peer.bucket.take(now) and (peer.known or self._newcomers.take(now)), Reason.quota),
        ):
            if not allowed():
                peer.refused[reason] += 1
                raise Refused(reason)
        peer.came(rollout.round, rollout.slot, now)
        return statement, peer

    def examine(self, statement: Statement) -> Question:
        """The question of a rollout, made again, if the rollout is what it must be."""
        rollout, config, tasks = statement.rollout, self.config, self.tasks
        _require(rollout.node == name_of(statement.key), Reason.name)
        try:
            drawn = tasks.is_drawn(rollout.question, rollout.slot, self.swarm, statement.key.hex(), rollout.round)
            _require(drawn, Reason.seed)
            question = tasks.question(rollout.question)
        except ValueError:
            raise Refused(Reason.task) from None
        _require(rollout.question_hash == question.hash, Reason.question)
        _require(not tasks.is_held_out(question), Reason.held_out)
        _require(1 <= len(rollout.completions) <= config.max_generations, Reason.completions)
        for completion in rollout.completions:
            plain = all(part.mime == "text/plain" and not part.data for part in completion.parts)
            _require(plain and len(completion.text) <= int(config.max_characters), Reason.completions)
            _require(not MARKERS.search(completion.text), Reason.markers)
        return question

    def save(self, folder: Path) -> None:
        with self._books:
            state = {"refused": self.refused, "admitted": self.admitted, "peers": self.peers.state()}
            data = msgspec.msgpack.encode(state)
        (folder / FILE).write_bytes(data)

    def load(self, folder: Path) -> None:
        """Takes up what `save` wrote, in place of all that has come since this was made."""
        state = msgspec.msgpack.decode((folder / FILE).read_bytes(), strict=False)
        with self._books:
            self.refused, self.admitted = Counter(state["refused"]), state["admitted"]
            self.peers.restore(state["peers"], self.clock())
            self._texts = Recent(TEXTS, lambda: None)

    def status(self) -> dict[str, Any]:
        """What came of whom, the most first, as plain data."""
        with self._books:
            ordered = sorted(self.peers.by_key.items(), key=lambda item: -item[1].last)[:100]
            now = self.clock()
            peers = [
                {
                    "name": name_of(key),
                    "id": key.hex(),
                    "admitted": peer.admitted,
                    "refused": dict(peer.refused),
                    "weight": peer.weight,
                    "muted": max(0.0, peer.muted_until - now),
                    "last": peer.last,
                }
                for key, peer in ordered
            ]
            return {"admitted": self.admitted, "refused": dict(self.refused), "peers": peers}

    def _blame(self, peer: Peer, reason: Reason) -> None:
        with self._books:
            self.refused[reason] += 1
            peer.refused[reason] += 1
            if reason in OFFENCES:
                peer.offend(self.clock())

    def _is_new(self, scored: Scored) -> bool:
        """Whether nobody has sent the same texts for the same question."""
        texts = hash_of((scored.question.hash, sorted(completion.text for completion in scored.rollout.completions)))
        known = texts in self._texts
        self._texts[texts]
        return not known


def _require(holds: bool, reason: Reason) -> None:
    if not holds:
        raise Refused(reason)
