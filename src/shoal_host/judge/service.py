"""The course of a question, from an Ask to its score: the `Rules`, with everything around them that takes time.

The event loop only parses, checks signatures and applies the rules. Threads make questions, write rows and have answers
scored in a process of its own. Addresses take turns at questions and at scores, so that one's slow answers do not delay
everybody. What a request has started continues if its connection breaks, and whoever sends the same request again waits
for the same result.
"""

import asyncio
import contextlib
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.tasks.draw import HELD_OUT
from shoal_host.judge.messages import (
    Answer,
    Ask,
    Envelope,
    Posed,
    Receipt,
    Verdict,
    is_signed,
    open_envelope,
    seal,
)
from shoal_host.judge.questions import Questions
from shoal_host.judge.records import Records, answer_row, ask_rows, outcome_row
from shoal_host.judge.rules import Refused, Rules, Session, Stage, Terms
from shoal_host.judge.scoring import Scoring, Turns

T = TypeVar("T")
SCORE_SECONDS = 1.0
"""Seconds that a node waits for its score before it gets a receipt."""
WAITING = 256
"""Unscored answers of one address, beyond which it gets no more questions."""
LEAST_FREE = 256 * 2**20
"""Bytes of the disk that must be free for new questions. Answers to earlier ones are stored to the last."""


class Service:
    """A judge at work, while it is `running`. For one event loop."""

    def __init__(
        self,
        identity: Identity,
        questions: Questions,
        records: Records,
        scoring: Scoring,
        terms: Terms,
        clock: Callable[[], float],
    ) -> None:
        self.identity, self.questions, self.records, self.scoring = identity, questions, records, scoring
        self.terms, self.clock = terms, clock
        self.rules = Rules(identity.public, terms, clock, records.last, records.next_id())
        self.refused: Counter[str] = Counter()
        self._counts = {"asked": 0, "scored": 0, "lapsed": 0, "void": 0}
        self._drawing = Turns()
        self._posing: dict[int, asyncio.Task[Envelope]] = {}
        """Questions that are drawn and stored, by session."""
        self._keeping: dict[int, asyncio.Task[None]] = {}
        """Answers that are stored."""
        self._ending: dict[int, asyncio.Task[None]] = {}
        """Questions that are scored, or written down as lapsed."""
        self._full = False

    async def ask(self, data: bytes, address: str) -> Envelope:
        """The Posed in reply to an Ask. Raises `Malformed` and `Refused`."""
        ask, envelope = open_envelope(data, Ask)
        if self._full:
            raise Refused("full", "the judge's disk is full", 60.0)
        self.rules.screen(ask)
        _check_signature(envelope, ask.key)
        party = address or ask.key.hex()
        if self.scoring.waiting(party) >= WAITING:
            raise Refused("busy", f"{WAITING} answers from your address wait for their scores", 10.0)
        session = self.rules.open(ask, envelope.hash, address)
        if session.stage == Stage.open:
            return await self._posed(session, party)
        posing = self._posing.get(session.id) or _start(self._posing, session, self._pose(session, envelope, party))
        return await asyncio.shield(posing)

    async def answer(self, data: bytes, address: str) -> Envelope:
        """The Verdict in reply to an Answer, or a Receipt. Raises `Malformed` and `Refused`."""
        answer, envelope = open_envelope(data, Answer)
        session = self.rules.answer(answer, envelope.hash)
        _check_signature(envelope, answer.key)
        if session.stage == Stage.open:
            session.stage, session.answer = Stage.answered, envelope.hash
            _start(self._keeping, session, self._keep(session, envelope, answer.text, address))
        if keeping := self._keeping.get(session.id):
            await asyncio.shield(keeping)
        if ending := self._ending.get(session.id):
            await asyncio.wait({ending}, timeout=SCORE_SECONDS)
        head: dict[str, Any] = {"judge": self.identity.public, "key": session.key, "answer": session.answer}
        if session.stage != Stage.scored or (ending and not ending.done()):  # no score yet, or it is not on disk
            return seal(Receipt(**head, time=self.clock()), self.identity)
        assert session.question is not None
        verdict = Verdict(
            **head,
            number=session.number,
            round=session.round,
            model=session.model,
            question=session.question,
            score=session.score,
            time=session.settled,
        )
        return seal(verdict, self.identity)

    def card(self) -> dict[str, Any]:
        """What it says about itself, for people."""
        identity, terms, labels = self.identity, self.terms, self.questions.tasks.labels
        shown = {"name": identity.name, "tasks": labels, "held_out": HELD_OUT}
        shown |= {"limit": terms.limit, "interval": terms.interval}
        return {"judge": identity.id, "work": terms.work, **shown}

    def state(self) -> dict[str, Any]:
        """Its state as plain data."""
        return {
            **self._counts,
            "under_way": len(self.rules),
            "waiting_for_scores": len(self._ending),
            "refused": dict(self.refused),
            "full": self._full,
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Continues what the records say is open. At the end it waits a little for what is going on."""
        await self._restore()
        ticker = asyncio.ensure_future(self._tick())
        try:
            yield
        finally:
            ticker.cancel()
            if ending := [*self._keeping.values(), *self._ending.values()]:
                await asyncio.wait(ending, timeout=5.0)

    async def _write(self, *rows: tuple[str, tuple[Any, ...]]) -> None:
        await asyncio.wrap_future(self.records.append(*rows))

    async def _pose(self, session: Session, ask: Envelope, party: str) -> Envelope:
        try:
            envelope = await self._posed(session, party)
            session.posed = envelope.hash
            await self._write(*ask_rows(session, ask.statement, ask.signature))
        except BaseException as error:
            self.rules.forget(session)
            if isinstance(error, sqlite3.Error | UserError):
                raise Refused("busy", f"no question could be made and stored: {error}", 10.0) from None
            raise
        session.stage = Stage.open
        self._counts["asked"] += 1
        return envelope

    async def _posed(self, session: Session, party: str) -> Envelope:
        """The question of a session, the same bytes each time."""
        async with self._drawing.of(party):
            task, question = await asyncio.to_thread(self.questions.draw, session.key, session.number)
        session.task, session.question = task, question.id
        posed = Posed(
            judge=self.identity.public,
            key=session.key,
            ask=session.ask,
            number=session.number,
            round=session.round,
            task=task,
            prompt=question.chat,
            asked=session.asked,
            expires=session.expires,
        )
        return seal(posed, self.identity)

    async def _keep(self, session: Session, answer: Envelope, text: str, address: str) -> None:
        try:
            await self._write(answer_row(session, self.clock(), answer.statement, answer.signature))
        except BaseException as error:
            session.stage, session.answer = Stage.open, b""  # it may be sent again
            if isinstance(error, sqlite3.Error):
                raise Refused("busy", f"the answer could not be stored: {error}", 2.0) from None
            raise
        _start(self._ending, session, self._score(session, text, address))

    async def _score(self, session: Session, text: str, address: str = "") -> None:
        assert session.question is not None
        party = address or session.key.hex()  # after a restart nobody knows its address
        score, failure = await self.scoring.score(session.question, text, party)
        self.rules.score(session, score)
        await self._settle(session, failure)

    async def _settle(self, session: Session, failure: str = "") -> None:
        """Writes its outcome, as many times as it takes."""
        pause = 1.0
        while True:
            try:
                await self._write(outcome_row(session, failure))
                break
            except sqlite3.IntegrityError:
                break  # it is there
            except sqlite3.Error:
                await asyncio.sleep(pause)
                pause = min(30.0, 2 * pause)
        self._counts[session.stage.value] += 1
        self.rules.forget(session)

    async def _restore(self) -> None:
        found = list(self.records.unsettled())
        self.rules.restore(session for session, _ in found)
        for session, answer in found:
            if answer:
                text = msgspec.msgpack.decode(answer, type=Answer).text
                _start(self._ending, session, self._score(session, text))

    async def _tick(self) -> None:
        """Every second: settles questions whose time is over, and looks for room on the disk."""
        while True:
            for session in self.rules.lapse():
                _start(self._ending, session, self._settle(session))
            with contextlib.suppress(OSError):
                self._full = shutil.disk_usage(self.records.path.parent).free < LEAST_FREE
            await asyncio.sleep(1.0)


def _check_signature(envelope: Envelope, key: bytes) -> None:
    if not is_signed(envelope, key):
        raise Refused("signature", "this is not signed by the key in it")


def _start(running: dict[int, asyncio.Task[T]], session: Session, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """`work` on a session as a task, which is in `running` until it is done."""
    task = asyncio.ensure_future(work)
    running[session.id] = task
    task.add_done_callback(lambda done: (running.pop(session.id, None), done.cancelled() or done.exception()))
    return task
