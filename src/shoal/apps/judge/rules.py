"""Who may ask, and who may answer what: the rules of a judge, without any I/O and with a clock from outside.

    rules.screen(ask)                        # cheap, before the signature is checked
    session = rules.open(ask, hash)          # granted: one question
    rules.pose(session)                      # it is on disk and goes out
    session = rules.answer(answer, hash)     # in time, the first and only one
    rules.take(session, hash)                # if its stage was `open`
    rules.score(session, 1.0, trouble=False)
    rules.lapse()                            # those whose time ran out: they count as wrong

A node has one question at a time, and no other before it has answered or its time ran out. Its rounds only rise. The
same bytes again, of an Ask or an Answer, get the same reply again, so that a lost connection costs nothing; other bytes
in their place are refused. All that decides this comes back from the records after a restart.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from shoal.apps.judge.addresses import Meter
from shoal.apps.judge.sessions import DONE, Node, Nodes, Session, Stage
from shoal.evaluation.judge_messages import Answer, Ask, is_worked


class Reason(StrEnum):
    """Why there is no statement in reply, each with its status of HTTP."""

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
    address = "address", 429
    busy = "busy", 503

    status: int

    def __new__(cls, name: str, status: int) -> Reason:
        made = str.__new__(cls, name)
        made._value_, made.status = name, status
        return made


OFFENCES = {Reason.malformed, Reason.signature, Reason.work, Reason.answered, Reason.size}
"""What no honest program sends. (A wrong key or clock may be a mistake.)"""


class Refused(Exception):  # noqa: N818 (it is an answer, not a fault)
    def __init__(self, reason: Reason, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.retry_after = reason, detail, retry_after


@dataclass(frozen=True)
class Terms:
    """On which a judge serves."""

    limit: float = 120.0
    """Seconds for an answer."""
    interval: float = 5.0
    """Seconds between a node's questions, in the long run."""
    burst: float = 6.0
    """Questions that it may have one after the other."""
    window: float = 120.0
    """Seconds that an Ask may be old or early: one that was caught on its way is worth nothing later."""
    work: int = 16
    """Bits of work that a new key must show."""
    newcomers: float = 600.0
    """New keys a minute, of all addresses; as many at once. Half are kept for addresses that bring their first: who
    makes keys by the thousand keeps out none but himself."""
    sessions: int = 20_000
    """Questions under way at a time."""
    nodes: int = 200_000
    """Nodes in memory; the others are looked up."""


class Rules:
    """Used by one thread."""

    def __init__(
        self,
        judge: bytes,
        terms: Terms,
        clock: Callable[[], float],
        last: Callable[[bytes], Session | None] = lambda _: None,
        next_id: int = 1,
    ) -> None:
        """`last`: the last question that a key had, from the records."""
        self.judge, self.terms, self.clock = judge, terms, clock
        self.nodes = Nodes(terms.nodes, self._load)
        self._last = last
        self._next_id = next_id
        kept = terms.newcomers // 2
        self._firsts = Meter(kept / 60, kept, clock())
        self._newcomers = Meter((terms.newcomers - kept) / 60, max(1.0, terms.newcomers - kept), clock())
        self._under_way: dict[int, Session] = {}
        self._deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        """Questions under way."""
        return len(self._under_way)

    def restore(self, sessions: Iterable[Session]) -> None:
        """Takes up what was under way when the judge went down. Nodes get the whole time again."""
        now = self.clock()
        for session in sessions:
            self._under_way[session.id] = session
            if session.stage == Stage.open:
                session.interrupted, session.deadline = True, now + self.terms.limit
                heapq.heappush(self._deadlines, (session.deadline, session.id))
            self.nodes.find(session.key)  # which takes it from here

    def screen(self, ask: Ask) -> bool:
        """Whether the key is new. What can be said before the signature is checked, so that nothing is counted against
        the key: anybody can name it."""
        self._is_here(ask.judge)
        now = self.clock()
        if abs(ask.time - now) > self.terms.window:
            raise Refused(Reason.clock, f"your clock is {ask.time - now:+.0f} s off", 0.0)
        is_new = self.nodes.find(ask.key) is None
        if is_new and not is_worked(self.judge, ask.key, ask.work, self.terms.work):
            raise Refused(Reason.work, f"a new key must show {self.terms.work} bits of work", 0.0)
        return is_new

    def open(self, ask: Ask, hash: bytes, first: bool = True) -> Session:
        """The question that this Ask is granted; the same one if it had it already. The Ask is signed and screened.
        `first`: a new key is the first of its address."""
        now, terms = self.clock(), self.terms
        node = self.nodes.find(ask.key)
        if node is not None and node.session is not None and node.busy:
            session = node.session
            if session.ask == hash and session.stage in (Stage.drawing, Stage.open):
                return session
            wait = max(0.0, session.deadline - now) if session.stage == Stage.open else 1.0
            raise Refused(Reason.open, f"the question of round {session.round} has no answer yet", wait)
        if node is not None and ask.round <= node.round:
            raise Refused(Reason.round, f"you have asked after round {node.round}, and rounds only rise")
        if len(self._under_way) >= terms.sessions:
            raise Refused(Reason.crowded, f"{terms.sessions} questions are under way", terms.limit / 4)
        if node is not None and not node.pace.take(now):
            raise Refused(Reason.rate, f"one question in {terms.interval:g} s", node.pace.wait(now))
        if node is None:
            if not (first and self._firsts.take(now)) and not self._newcomers.take(now):
                raise Refused(Reason.newcomers, "too many new keys", self._newcomers.wait(now))
            node = self._node(ask.key)
            node.pace.take(now)
            self.nodes.put(node)
        expires = now + terms.limit
        session = Session(
            self._next_id, ask.key, node.questions, ask.round, ask.model, ask.in_swarm, hash, now, expires, expires
        )
        self._next_id += 1
        node.questions, node.round, node.session = node.questions + 1, ask.round, session
        self._under_way[session.id] = session
        return session

    def pose(self, session: Session) -> None:
        """The question is on disk, and goes out."""
        session.stage = Stage.open
        heapq.heappush(self._deadlines, (session.deadline, session.id))

    def withdraw(self, session: Session) -> None:
        """The question could not be drawn or kept, and never went out."""
        self._under_way.pop(session.id, None)
        self.nodes.drop(session.key)

    def answer(self, answer: Answer, hash: bytes) -> Session:
        """The question that is answered, which is to be scored now if its stage is `open`. The answer is signed."""
        self._is_here(answer.judge)
        node = self.nodes.find(answer.key)
        session = node.session if node else None
        if session is None or not session.posed or session.posed != answer.posed:
            raise Refused(Reason.unknown, "this is not the last question that you had")
        if session.answer:
            if session.answer != hash:
                raise Refused(Reason.answered, "you have given another answer to this question")
            return session
        if session.stage != Stage.open or self.clock() > session.deadline:
            raise Refused(Reason.late, f"the time for an answer, {self.terms.limit:g} s, ran out")
        return session

    def take(self, session: Session, hash: bytes) -> None:
        """The answer is the one, from now on."""
        session.stage, session.answer = Stage.answered, hash

    def give_back(self, session: Session) -> None:
        """The answer could not be kept: it may come again."""
        session.stage, session.answer = Stage.open, b""
        heapq.heappush(self._deadlines, (session.deadline, session.id))

    def score(self, session: Session, score: float, trouble: bool) -> None:
        """The answer has its score. `trouble`: it took too long to score, or the scorer with it."""
        session.score = score
        node = self.nodes.find(session.key)
        if node is not None:
            node.scored(trouble)
        self._settle(session, Stage.scored)

    def trusts(self, session: Session) -> bool:
        node = self.nodes.find(session.key)
        return node is not None and node.trusted

    def lapse(self) -> list[Session]:
        """The questions whose time ran out since the last call."""
        now, found = self.clock(), []
        while self._deadlines and self._deadlines[0][0] < now:
            _, id = heapq.heappop(self._deadlines)
            session = self._under_way.get(id)
            if session is not None and session.stage == Stage.open:
                self._settle(session, Stage.void if session.interrupted else Stage.lapsed)
                found.append(session)
        return found

    def _node(self, key: bytes) -> Node:
        return Node(key, Meter(1 / self.terms.interval, self.terms.burst, self.clock()))

    def _load(self, key: bytes) -> Node | None:
        """A node from the records. A question without an outcome there is under way here."""
        session = self._last(key)
        if session is None:
            return None
        node = self._node(key)
        node.questions, node.round = session.number + 1, session.round
        node.session = self._under_way.get(session.id, session)
        if node.busy and session.id not in self._under_way:
            self._under_way[session.id] = session
            heapq.heappush(self._deadlines, (session.deadline, session.id))
        return node

    def _settle(self, session: Session, stage: Stage) -> None:
        assert session.stage not in DONE, "settled twice"
        session.stage, session.settled = stage, self.clock()
        self._under_way.pop(session.id, None)

    def _is_here(self, judge: bytes) -> None:
        if judge != self.judge:
            raise Refused(Reason.judge, f"this is the judge {self.judge.hex()}")
