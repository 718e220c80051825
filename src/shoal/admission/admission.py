"""Admission: every check between the bytes of a stranger and the pool.

    admission = Admission("lagoon", examiner, AdmissionLimits(), num_generations=8)
    admission.admit([(id, data), ...])                   # rollouts scored by this node, ready for the pool
    admission.refused                                    # Counter({"age": 3, "seed": 1})

Cheap checks go first. Until the signature is checked, nothing counts against the key that a message claims. A stranger
can only say "here are texts for that question": an `Examiner` makes the question again, in a process of its own. It
must be the question that the maker's key, round and slot give, so that nobody chooses easy or poisoned questions."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from shoal.admission.bounded import RecentKeys
from shoal.admission.clocks import Clocks
from shoal.admission.limits import OFFENCES, AdmissionLimits, Reason, Refused
from shoal.admission.peers import FUTURE, Differing, Peer, Peers
from shoal.config.display_name import harmless
from shoal.identity.keys import name_of
from shoal.identity.secret import OPEN, Secret
from shoal.policy.control import ControlText
from shoal.rewards import Combined
from shoal.rollout import MAX_TURNS, FinishReason, Rollout, Scored, hash_of
from shoal.sandbox.examiner import Candidate, Examiner, Verdict
from shoal.sandbox.replay import with_observations
from shoal.wire.rollouts import Malformed, NewerVersion, Statement, check_signature, open_envelope
from shoal.wire.signed import AHEAD, OLD

FILE = "admission.msgpack"
FAST, PATIENT = 0.05, 2.0  # seconds of processor time to examine one message, in the quick and in the patient thread
TEXTS = 8192  # rollouts whose texts are remembered, to find duplicates
SHOWN = 100  # peers in `status`


class SlowAnswers(Exception):  # noqa: N818 (it may be nobody's fault)
    """A message takes longer to examine than `FAST`: the patient thread has to do it. `seconds`: spent so far."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"more than {seconds} seconds")
        self.seconds = seconds


@dataclass(frozen=True)
class Claim:
    """A new message with a valid signature, of a key that may send now."""

    rollout: Rollout
    key: bytes
    peer: Peer


class Admission:
    """Checks messages and scores their rollouts. Thread-safe."""

    def __init__(
        self,
        swarm: str,
        examiner: Examiner,
        limits: AdmissionLimits,
        *,
        num_generations: int,
        patient: Examiner | None = None,
        rewards: Combined | None = None,
        clock: Callable[[], float] = time.time,
        secret: Secret = OPEN,
        own: bytes = b"",
    ) -> None:
        """`num_generations`: G; a longer group is cut to it. `patient`: examines what takes longer than `FAST`; by
        default `examiner` does. `rewards`: rewards beside the verifier.
        `secret`: of a private swarm. `own`: this node's public key."""
        self.swarm = swarm
        self.limits = limits
        self.refused: Counter[str] = Counter()
        self.admitted = 0
        self.peers = Peers(limits, own)
        self.rewards = rewards
        self.control = ControlText(())
        """The control tokens of this node's own model as text, once they are known."""
        self.differing = Differing()
        """Peers whose tasks are others, once this node's own tasks are known."""
        self.clocks = Clocks()
        self._examiner, self._patient = examiner, patient or examiner
        self._num_generations = num_generations
        self._clock = clock
        self._secret = secret
        self._texts: RecentKeys[str] = RecentKeys(TEXTS)
        self._lock = threading.Lock()  # held for moments, never while scoring: a checkpoint must not wait

    def admit(self, messages: Sequence[tuple[str, bytes]]) -> list[Scored]:
        """The scored rollouts of those `messages` that are admitted. Each message comes with the address under which it
        came: its maker's id or, in a private swarm, a hash. Raises nothing for what strangers send."""
        claims = [claim for id, data in messages if (claim := self.attribute(id, data)) is not None]
        return [scored for claim in claims if (scored := self.examine(claim, patient=True)[0]) is not None]

    def attribute(self, id: str, data: bytes) -> Claim | None:
        """Identifies the maker of a message and whether it may send now; None if it is refused. A flood costs no more
        than this."""
        try:
            return self._attributed(id, data)
        except Refused as refusal:
            with self._lock:
                self.refused[refusal.reason] += 1
            return None

    def examine(self, claim: Claim, patient: bool) -> tuple[Scored | None, float]:
        """The scored rollout, or None if it is refused; and the seconds that this took. Raises `SlowAnswers` if the
        rollout needs a `patient` examination."""
        rollout = claim.rollout.first(self._num_generations)
        verdict, began = Verdict(), time.monotonic()

        def spent() -> float:
            """Rewards may take any time, in processes of their own."""
            return verdict.seconds if self.rewards is None else time.monotonic() - began

        try:
            self._check(rollout, claim.key)
            _require(claim.peer.may_try(rollout.question.task, self._clock()), Reason.slow_task)
            candidate = self._candidate(rollout, claim.key)
            if patient:
                verdict = self._patient.examine(candidate, PATIENT)
            elif self.rewards is not None:  # which may take any time
                raise SlowAnswers(0.0)
            else:
                verdict = self._examiner.examine(candidate, FAST)
                if verdict.reason in (Reason.slow, Reason.slow_question, Reason.slow_task):
                    raise SlowAnswers(verdict.seconds)
            if verdict.reason == Reason.slow_task:
                claim.peer.was_slow(rollout.question.task, self._clock())
            if verdict.reason:
                raise Refused(Reason(verdict.reason))
            return self._scored(claim, rollout, candidate, verdict), spent()
        except Refused as refusal:
            self._blame(claim, refusal.reason)
            return None, spent()

    def save(self, folder: Path) -> None:
        with self._lock:
            state = {"refused": self.refused, "admitted": self.admitted, "peers": self.peers.state()}
            data = msgspec.msgpack.encode(state)
        (folder / FILE).write_bytes(data)

    def load(self, folder: Path) -> None:
        """Restores what `save` wrote, in place of all that came since the start."""
        state = msgspec.msgpack.decode((folder / FILE).read_bytes(), strict=False)
        with self._lock:
            self.refused, self.admitted = Counter(state["refused"]), state["admitted"]
            self.peers.restore(state["peers"], self._clock())
            self._texts = RecentKeys(TEXTS)

    def status(self) -> dict[str, Any]:
        """What was admitted and refused, in all and for the peers heard last, as plain data."""
        with self._lock:
            ordered = sorted(self.peers.by_key.items(), key=lambda item: -item[1].last)[:SHOWN]
            now = self._clock()
            peers = [
                {
                    "name": name_of(key),
                    "display_name": peer.display_name,
                    "id": key.hex(),
                    "kind": peer.kind,
                    "known": peer.known,
                    "admitted": peer.admitted,
                    "refused": dict(peer.refused),
                    "muted": max(0.0, peer.muted_until - now),
                    "last": peer.last,
                }
                for key, peer in ordered
            ]
            return {"admitted": self.admitted, "refused": dict(self.refused), "peers": peers}

    def _attributed(self, id: str, data: bytes) -> Claim:
        limits, now = self.limits, self._clock()
        _require(len(data) <= limits.max_bytes, Reason.size)
        try:
            statement, envelope = open_envelope(data)
        except NewerVersion:
            raise Refused(Reason.version) from None
        except Malformed:
            raise Refused(Reason.malformed) from None
        rollout = statement.rollout
        _require(0 <= rollout.slot < limits.max_slots and 0 <= rollout.round < 2**53, Reason.malformed)
        _require(statement.swarm == self.swarm, Reason.swarm)
        _require(self._secret.address(statement.key.hex()) == id, Reason.key)
        _require(check_signature(envelope, statement, self._secret.context), Reason.signature)
        ahead = statement.time - now
        if ahead > -AHEAD or limits.max_seconds <= OLD:  # in a place it may have waited for days
            self.clocks.note(statement.key, ahead, stored=True)
        _require(ahead >= -limits.max_seconds, Reason.age)
        _require(ahead <= FUTURE, Reason.future)
        with self._lock:
            peer = self.peers.get(statement.key, now)
            self._check_rights(peer, statement, now)
            peer.came(rollout.round, rollout.slot, now, statement.time)
            peer.kind, peer.display_name = statement.kind, harmless(statement.display_name)
        return Claim(rollout.public(), statement.key, peer)  # log-probabilities are of no use here, and may be long

    def _check_rights(self, peer: Peer, statement: Statement, now: float) -> None:
        round, slot = statement.rollout.round, statement.rollout.slot
        peer.begin(round, now, statement.time)
        try:
            _require(now >= peer.muted_until, Reason.muted)
            _require(self.peers.may_use_name(statement.key, now), Reason.name_taken)
            _require(not peer.seen.has(round, slot), Reason.repeated)
            _require(not (peer.leaps(round, now) or peer.before(round, statement.time)), Reason.round)
            _require(peer.bucket.take(now), Reason.quota)
        except Refused as refusal:
            peer.refused[refusal.reason] += 1
            raise

    def _check(self, rollout: Rollout, key: bytes) -> None:
        """The checks that do not need the question."""
        _require(rollout.node == name_of(key), Reason.name)
        _require(len(rollout.completions) > 0, Reason.completions)
        for completion in rollout.completions:
            _require(1 <= len(completion.parts) <= MAX_TURNS, Reason.completions)
            for part in completion.parts:
                plain = part.mime == "text/plain" and not part.data
                _require(plain, Reason.completions)
                _require(len(part.text) <= self.limits.max_characters, Reason.length)
            _require(len(completion.text) <= self.limits.all_characters, Reason.length)
            _require(not self.control.found(completion.text), Reason.markers)

    def _candidate(self, rollout: Rollout, key: bytes) -> Candidate:
        """What the examiner gets."""
        texts = tuple(completion.answer for completion in rollout.completions)
        cut = tuple(completion.finish_reason == FinishReason.length for completion in rollout.completions)
        place = self.swarm, key.hex(), rollout.round
        return Candidate(rollout.question, rollout.question_hash, place, rollout.slot, texts, cut)

    def _scored(self, claim: Claim, rollout: Rollout, candidate: Candidate, verdict: Verdict) -> Scored:
        assert verdict.question is not None
        question = verdict.question
        with self._lock:
            texts = sorted(completion.text for completion in rollout.completions)
            # A single answer is short, perhaps one of four letters: one key must not give them all for everybody.
            maker = claim.key.hex() if len(texts) == 1 else ""
            new = self._texts.add(hash_of((question.hash, texts, maker)))
        _require(new, Reason.duplicate)
        rewards = verdict.rewards
        if self.rewards is not None:
            [summed] = self.rewards.score([(question, candidate.texts)], [rewards])
            rewards = tuple(summed)
        shown = with_observations(rollout.public(), verdict.observations) if verdict.observations else rollout.public()
        scored = Scored(shown, question, rewards, newcomer=not claim.peer.known)
        with self._lock:  # again: another key of this name may have come while this one was examined
            now = self._clock()
            _require(self.peers.may_use_name(claim.key, now), Reason.name_taken)
            self.admitted += 1
            self.peers.admit(claim.key, scored.may_teach and max(rewards) > 0, now)
        return scored

    def _blame(self, claim: Claim, reason: Reason) -> None:
        if reason == Reason.task:
            self.differing.note(claim.rollout.question, name_of(claim.key))
        with self._lock:
            self.refused[reason] += 1
            claim.peer.refused[reason] += 1
            if reason in OFFENCES:
                claim.peer.offend(self._clock(), OFFENCES[reason])


def _require(holds: bool, reason: Reason) -> None:
    if not holds:
        raise Refused(reason)
