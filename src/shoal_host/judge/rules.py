"""Who may ask and who may answer what: the rules of a judge, without I/O and with a clock from outside.

    rules.screen(ask)                        # cheap, before the signature is checked
    session = rules.open(ask, hash)          # granted: one question
    rules.pose(session)                      # it is on disk and goes out
    session = rules.answer(answer, hash)     # in time, and the only answer
    rules.take(session, hash)                # if its stage was `open`
    rules.score(session, 1.0, trouble=False)
    rules.lapse()                            # those whose time is over: they count as wrong

A node has one question at a time, and no other before it has answered or its time is over. Its rounds only rise. An Ask
or Answer that is sent again, byte for byte, gets the same reply, so that a lost connection costs nothing; different
bytes in its place are refused. After a restart all of this is restored from the records.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from shoal.admission.bounded import Bucket, Recent
from shoal_host.judge.messages import Answer, Ask, is_worked
from shoal_host.judge.sessions import DONE, Node, Nodes, Session, Stage


class Reason(StrEnum):
    """Why a request is refused, with its HTTP status."""

    malformed = "malformed", 400
    judge = "judge", 403
    clock = "clock", 409
    signature = "signature", 403
    work = "work", 403
    newcomers = "newcomers", 429
    open = "open", 409
    round = "round", 409
    rate = "rate", 429
    crowded = "crowded", 503
    unknown = "unknown", 404
    answered = "answered", 409
    late = "late", 409
    full = "full", 503
    size = "size", 413
    slow = "slow", 408
    busy = "busy", 503

    status: int

    def __new__(cls, name: str, status: int) -> Reason:
        made = str.__new__(cls, name)
        made._value_, made.status = name, status
        return made


class Refused(Exception):  # noqa: N818 (it is an answer, not a fault)
    def __init__(self, reason: Reason, detail: str, retry_after: float | None = None) -> None:
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
    nodes: int = 200_000
    """Nodes in memory; others are read from disk."""


ADDRESSES = 65_536
"""Addresses whose new keys are counted: those that brought one last."""


class Rules:
    """For one thread."""

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
        self.nodes = Nodes(terms.nodes, self._load)
        self._last = last
        self._next_id = next_id
        kept = terms.newcomers // 2
        self._firsts = Bucket(kept / 60, kept, clock())
        self._newcomers = Bucket((terms.newcomers - kept) / 60, max(1.0, terms.newcomers - kept), clock())
        pace = terms.address_newcomers
        self._addresses: Recent[str, Bucket] = Recent(ADDRESSES, lambda: Bucket(pace / 60, max(1.0, pace), clock()))
        self._open: dict[int, Session] = {}
        self._deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        """Questions that are not settled."""
        return len(self._open)

    def restore(self, sessions: Iterable[Session]) -> None:
        """Takes over what was open when the judge went down. Nodes get the whole time again."""
        for session in sessions:
            self._open[session.id] = session
            if session.stage == Stage.open:
                session.interrupted, session.deadline = True, self.clock() + self.terms.limit
                self._set_deadline(session)
            self.nodes.find(session.key)  # which takes it from here

    def screen(self, ask: Ask) -> None:
        """Checks what can be checked before the signature, so nothing is counted against the key: anybody can name
        it."""
        self._check_judge(ask.judge)
        ahead = ask.time - self.clock()
        if abs(ahead) > self.terms.clock_error:
            raise Refused(Reason.clock, f"your clock is {ahead:+.0f} s off", 0.0)
        if self.nodes.find(ask.key) is None and not is_worked(self.judge, ask.key, ask.work, self.terms.work):
            raise Refused(Reason.work, f"a new key must show {self.terms.work} bits of work", 0.0)

    def open(self, ask: Ask, hash: bytes, address: str = "") -> Session:
        """The question that this Ask is granted; the same one if it is sent again. The Ask is signed and screened.
        `address`: whence it came."""
        now, terms = self.clock(), self.terms
        node = self.nodes.find(ask.key)
        if node is not None:
            if node.session is not None and node.busy:
                session = node.session
                if session.ask == hash and session.stage in (Stage.drawing, Stage.open):
                    return session
                wait = max(0.0, session.deadline - now) if session.stage == Stage.open else 1.0
                raise Refused(Reason.open, f"the question of round {session.round} has no answer yet", wait)
            if ask.round <= node.round:
                last = node.round
                why = f"this key was asked after round {last} before: it is asked again from round {last + 1} on"
                raise Refused(Reason.round, f"{why}; to go on with the earlier run, use --resume")
        if len(self._open) >= terms.sessions:
            raise Refused(Reason.crowded, f"{terms.sessions} questions are open", terms.limit / 4)
        if node is not None and not node.pace.take(now):
            raise Refused(Reason.rate, f"one question in {terms.interval:g} s", node.pace.wait(now))
        if node is None:
            self._let_in(address, now)
            node = self._node(ask.key)
            node.pace.take(now)
            self.nodes.put(node)
        expires = now + terms.limit
        session = Session(
            self._next_id, ask.key, node.questions, ask.round, ask.model, ask.in_swarm, hash, now, expires, expires
        )
        self._next_id += 1
        node.questions, node.round, node.session = node.questions + 1, ask.round, session
        self._open[session.id] = session
        return session

    def pose(self, session: Session) -> None:
        """The question is on disk and goes out."""
        session.stage = Stage.open
        self._set_deadline(session)

    def withdraw(self, session: Session) -> None:
        """The question could not be drawn or stored, and never went out."""
        self._open.pop(session.id, None)
        self.nodes.drop(session.key)

    def answer(self, answer: Answer, hash: bytes) -> Session:
        """The question that is answered; score the answer now if its stage is `open`. It changes
        nothing, so the signature may be checked afterwards."""
        self._check_judge(answer.judge)
        node = self.nodes.find(answer.key)
        session = node.session if node else None
        if session is None or not session.posed or session.posed != answer.posed:
            raise Refused(Reason.unknown, "this is not your last question")
        if session.answer:
            if session.answer != hash:
                raise Refused(Reason.answered, "you have given another answer to this question")
            return session
        if session.stage != Stage.open or self.clock() > session.deadline:
            raise Refused(Reason.late, f"the time for an answer, {self.terms.limit:g} s, is over")
        return session

    def take(self, session: Session, hash: bytes) -> None:
        """This is the answer from now on."""
        session.stage, session.answer = Stage.answered, hash

    def give_back(self, session: Session) -> None:
        """The answer could not be stored: it may be sent again."""
        session.stage, session.answer = Stage.open, b""
        self._set_deadline(session)

    def score(self, session: Session, score: float, trouble: bool) -> None:
        """The answer has its score. `trouble`: scoring took too long, or killed the scorer."""
        session.score = score
        node = self.nodes.find(session.key)
        if node is not None:
            node.scored(trouble)
        self._settle(session, Stage.scored)

    def trusts(self, session: Session) -> bool:
        node = self.nodes.find(session.key)
        return node is not None and node.trusted

    def lapse(self) -> list[Session]:
        """The questions whose time has run out since the last call."""
        now, found = self.clock(), []
        while self._deadlines and self._deadlines[0][0] < now:
            _, id = heapq.heappop(self._deadlines)
            session = self._open.get(id)
            if session is not None and session.stage == Stage.open:
                self._settle(session, Stage.void if session.interrupted else Stage.lapsed)
                found.append(session)
        return found

    def _let_in(self, address: str, now: float) -> None:
        """Counts a new key. Raises `Refused` for too many, from this address or from all."""
        known = address in self._addresses
        if known and not self._addresses[address].take(now):
            wait = self._addresses[address].wait(now)
            raise Refused(Reason.newcomers, "too many new keys from your address", wait)
        if (known or not self._firsts.take(now)) and not self._newcomers.take(now):
            raise Refused(Reason.newcomers, "too many new keys", self._newcomers.wait(now))
        if not known:
            self._addresses[address].take(now)

    def _node(self, key: bytes) -> Node:
        return Node(key, Bucket(1 / self.terms.interval, self.terms.burst, self.clock()))

    def _load(self, key: bytes) -> Node | None:
        """A node from the records. A question without an outcome there is open here."""
        session = self._last(key)
        if session is None:
            return None
        node = self._node(key)
        node.questions, node.round = session.number + 1, session.round
        node.session = self._open.get(session.id, session)
        if node.busy and session.id not in self._open:
            self._open[session.id] = session
            self._set_deadline(session)
        return node

    def _set_deadline(self, session: Session) -> None:
        heapq.heappush(self._deadlines, (session.deadline, session.id))

    def _settle(self, session: Session, stage: Stage) -> None:
        assert session.stage not in DONE, "settled twice"
        session.stage, session.settled = stage, self.clock()
        self._open.pop(session.id, None)

    def _check_judge(self, judge: bytes) -> None:
        if judge != self.judge:
            raise Refused(Reason.judge, f"this is the judge {self.judge.hex()}")
