"""Who may ask and who may answer what: the rules of a judge, without I/O and with a clock from outside.

    rules.screen(ask)                        # cheap, before the signature is checked
    session = rules.open(ask, hash)          # granted: one question
    session.stage = Stage.open               # it is on disk and goes out
    session = rules.answer(answer, hash)     # in time, and the only answer
    session.answer = hash                    # and its stage is `answered`, if that was `open`
    rules.score(session, 1.0)
    rules.lapse()                            # those whose time is over: they count as wrong
    rules.forget(session)                    # its end is on disk

A node has one question at a time, and its rounds only rise. An Ask or Answer that is sent again, byte for byte, gets
the same reply; different bytes are refused. After a restart the records restore all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shoal.admission.bounded import Bucket, Recent
from shoal.rollout import QuestionId
from shoal_host.judge.messages import Answer, Ask, is_worked


class Stage(StrEnum):
    """How far a question is."""

    drawing = "drawing"
    """Granted, and not yet on disk."""
    open = "open"
    """On disk; the node may have it."""
    answered = "answered"
    """The answer came in time."""
    scored = "scored"
    lapsed = "lapsed"
    """No answer came in time. It counts as wrong: otherwise a node could wait for a question that it likes."""
    void = "void"
    """No answer came, and the judge was down meanwhile. It is kept and does not count."""


DONE = {Stage.scored, Stage.lapsed, Stage.void}


@dataclass(slots=True)
class Session:
    """One question that was granted to one node."""

    id: int
    key: bytes
    number: int
    round: int
    model: str
    in_swarm: bool
    ask: bytes
    """Hash of the Ask."""
    asked: float
    expires: float
    """As the node knows it."""
    deadline: float
    """As the judge enforces it: later than `expires` if the judge was down."""
    stage: Stage = Stage.drawing
    task: str = ""
    question: QuestionId | None = None
    posed: bytes = b""
    """Hash of the Posed."""
    answer: bytes = b""
    """Hash of the Answer."""
    score: float = 0.0
    settled: float = 0.0
    """When it was scored, lapsed or became void."""
    interrupted: bool = False


STATUS: Final = {
    **{"malformed": 400, "judge": 403, "signature": 403, "work": 403, "unknown": 404, "slow": 408, "clock": 409},
    **{"open": 409, "round": 409, "answered": 409, "late": 409, "size": 413, "newcomers": 429, "rate": 429},
    **{"crowded": 503, "full": 503, "busy": 503},
}
"""Why a request is refused, with its HTTP status."""


class Refused(Exception):  # noqa: N818 (it is an answer, not a fault)
    def __init__(self, reason: str, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.retry_after = reason, detail, retry_after


@dataclass(frozen=True)
class Terms:
    """The terms on which a judge serves."""

    limit: float = 120.0
    """Seconds for an answer."""
    interval: float = 5.0
    """Seconds between a node's questions, on average."""
    burst: float = 6.0
    """Questions that it may have one after the other."""
    clock_error: float = 120.0
    """Seconds that an Ask may be old or early: an intercepted one is worthless later."""
    work: int = 16
    """Bits of work that a new key must show."""
    newcomers: float = 600.0
    """New keys each minute from all addresses; as many at once. Half are kept for the first key of an address: whoever
    makes keys by the thousand keeps nobody else out."""
    address_newcomers: float = 60.0
    """New keys each minute from one address; as many at once."""
    sessions: int = 20_000
    """Open questions at a time."""


ADDRESSES = 65_536
"""Addresses whose new keys are counted: those that brought one last."""
KEYS = 65_536
"""Keys whose pace is remembered: those that asked last."""


class Rules:
    """For one thread. What is under way is in memory, everything else on disk."""

    def __init__(
        self,
        judge: bytes,
        terms: Terms,
        clock: Callable[[], float],
        last: Callable[[bytes], Session | None] = lambda _: None,
        next_id: int = 1,
    ) -> None:
        """`last`: the last question of a key, from the records."""
        self.judge, self.terms, self.clock = judge, terms, clock
        self._last = last
        self._next_id = next_id
        kept = terms.newcomers // 2
        self._firsts = Bucket(kept / 60, kept, clock())
        self._newcomers = Bucket((terms.newcomers - kept) / 60, max(1.0, terms.newcomers - kept), clock())
        pace = terms.address_newcomers
        self._addresses: Recent[str, Bucket] = Recent(ADDRESSES, lambda: Bucket(pace / 60, max(1.0, pace), clock()))
        self._paces: Recent[bytes, Bucket] = Recent(KEYS, lambda: Bucket(1 / terms.interval, terms.burst, clock()))
        self._current: dict[bytes, Session] = {}
        """The last question of each key, unless its end is on disk."""

    def __len__(self) -> int:
        """Questions that are under way."""
        return len(self._current)

    def restore(self, sessions: Iterable[Session]) -> None:
        """Takes over what was open when the judge went down. Nodes get the whole time again."""
        for session in sessions:
            self._current[session.key] = session
            if session.stage == Stage.open:
                session.interrupted, session.deadline = True, self.clock() + self.terms.limit

    def screen(self, ask: Ask) -> None:
        """Checks what can be checked before the signature, so nothing is counted against the key: anybody can name
        it."""
        self._check_judge(ask.judge)
        ahead = ask.time - self.clock()
        if abs(ahead) > self.terms.clock_error:
            raise Refused("clock", f"your clock is {ahead:+.0f} s off", 0.0)
        if not is_worked(self.judge, ask.key, ask.work, self.terms.work) and self._find(ask.key) is None:
            raise Refused("work", f"a new key must show {self.terms.work} bits of work", 0.0)

    def open(self, ask: Ask, hash: bytes, address: str = "") -> Session:
        """The question that this Ask is granted; the same one if it is sent again. The Ask is signed and screened.
        `address`: whence it came."""
        now, terms, last = self.clock(), self.terms, self._find(ask.key)
        if last is not None and last.stage not in DONE:
            if last.ask == hash and last.stage in (Stage.drawing, Stage.open):
                return last
            wait = max(0.0, last.deadline - now) if last.stage == Stage.open else 1.0
            raise Refused("open", f"the question of round {last.round} has no answer yet", wait)
        if last is not None and ask.round <= last.round:
            after = (
                f"this key was asked up to round {last.round}, so the next question comes after round {last.round + 1}"
            )
            raise Refused("round", f"{after} (after --resume, and in a new run with the same key)")
        if len(self) >= terms.sessions:
            raise Refused("crowded", f"{terms.sessions} questions are open", terms.limit / 4)
        if last is None:
            self._let_in(address, now)
        pace = self._paces[ask.key]
        if not pace.take(now) and last is not None:
            raise Refused("rate", f"one question in {terms.interval:g} s", pace.wait(now))
        number, expires = (last.number + 1 if last else 0), now + terms.limit
        session = Session(
            self._next_id, ask.key, number, ask.round, ask.model, ask.in_swarm, hash, now, expires, expires
        )
        self._next_id += 1
        self._current[session.key] = session
        return session

    def answer(self, answer: Answer, hash: bytes) -> Session:
        """The question that is answered; score the answer now if its stage is `open`. It changes
        nothing, so the signature may be checked afterwards."""
        self._check_judge(answer.judge)
        session = self._find(answer.key)
        if session is None or not session.posed or session.posed != answer.posed:
            raise Refused("unknown", "this is not your last question")
        if session.answer:
            if session.answer != hash:
                raise Refused("answered", "you have given another answer to this question")
            return session
        if session.stage != Stage.open or self.clock() > session.deadline:
            raise Refused("late", f"the time for an answer, {self.terms.limit:g} s, is over")
        return session

    def score(self, session: Session, score: float) -> None:
        """The answer has its score."""
        session.score = score
        self._settle(session, Stage.scored)

    def lapse(self) -> list[Session]:
        """The questions whose time has run out since the last call."""
        late = [one for one in self._current.values() if one.stage == Stage.open and one.deadline < self.clock()]
        for session in late:
            self._settle(session, Stage.void if session.interrupted else Stage.lapsed)
        return late

    def forget(self, session: Session) -> None:
        """All of it is on disk, or it never went out."""
        if self._current.get(session.key) is session:
            del self._current[session.key]

    def _find(self, key: bytes) -> Session | None:
        """The last question of a key, or None if the key is new."""
        return self._current.get(key) or self._last(key)

    def _let_in(self, address: str, now: float) -> None:
        """Counts a new key. Raises `Refused` for too many, from this address or from all."""
        known = address in self._addresses
        if known and not self._addresses[address].take(now):
            wait = self._addresses[address].wait(now)
            raise Refused("newcomers", "too many new keys from your address", wait)
        if (known or not self._firsts.take(now)) and not self._newcomers.take(now):
            raise Refused("newcomers", "too many new keys", self._newcomers.wait(now))
        if not known:
            self._addresses[address].take(now)

    def _settle(self, session: Session, stage: Stage) -> None:
        assert session.stage not in DONE, "settled twice"
        session.stage, session.settled = stage, self.clock()

    def _check_judge(self, judge: bytes) -> None:
        if judge != self.judge:
            raise Refused("judge", f"this is the judge {self.judge.hex()}")
