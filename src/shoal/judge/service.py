"""The judge as a web service: Starlette on uvicorn, one process, one event loop.

    POST /ask      an Ask     -> a Posed
    POST /answer   an Answer  -> a Verdict, or a Receipt where scoring takes longer
    GET  /         the judge's card      GET /leaderboard      GET /health      (JSON)

The loop only parses, checks signatures and keeps the court. Questions are made in one thread, rows written by another,
answers scored in two more with processes of their own: nobody's slow answer is anybody's wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shoal.errors import UserError
from shoal.judge import reports
from shoal.judge.court import OFFENCES, Court, Reason, Refused, Terms
from shoal.judge.docket import Node, Session, Stage
from shoal.judge.doors import Doors, address_of
from shoal.judge.examiner import Examiner
from shoal.judge.marking import TROUBLES, Marking
from shoal.judge.messages import (
    MAX_BYTES,
    VERSION,
    Answer,
    Ask,
    Card,
    Envelope,
    Malformed,
    Posed,
    Receipt,
    Refusal,
    Statement,
    Verdict,
    encode,
    is_signed,
    open_envelope,
    seal,
)
from shoal.judge.records import Records, answer_row, ask_rows, outcome_row, restart_row
from shoal.swarm.identity import Identity

BODY_SECONDS = 5.0
"""For a request's body to arrive."""
SCORE_SECONDS = 1.0
"""That a node waits for its score before it gets a receipt."""
REQUESTS = 2000
"""Under way at a time."""
LEAST_FREE = 256 * 2**20
"""Bytes of the disk that must be free for new questions. Answers to those that are out are kept to the last."""
BOARD_SECONDS = 10.0
"""For which a leaderboard is good."""
STATUS = {
    Reason.malformed: 400,
    Reason.signature: 403,
    Reason.work: 403,
    Reason.judge: 403,
    Reason.unknown: 404,
    Reason.slow: 408,
    Reason.size: 413,
    Reason.rate: 429,
    Reason.address: 429,
    Reason.newcomers: 429,
    Reason.crowded: 503,
    Reason.full: 503,
    Reason.busy: 503,
}
"""Of the responses; 409 for the others."""


class SteadyClock:
    """Seconds since 1970 that never leap: the system's at the start, and what has passed since."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()


class Service:
    """What the handlers share. `app` is the ASGI application; its lifespan opens and closes everything."""

    def __init__(
        self,
        identity: Identity,
        examiner: Examiner,
        records: Records,
        marking: Marking,
        terms: Terms,
        doors: Doors,
        clock: Callable[[], float],
    ) -> None:
        self.identity, self.examiner, self.records, self.marking = identity, examiner, records, marking
        self.terms, self.doors, self.clock = terms, doors, clock
        self.court = Court(identity.public, terms, clock, self._load, records.next_id())
        self.counts = {"asked": 0, "scored": 0, "lapsed": 0, "void": 0}
        self._drawer = ThreadPoolExecutor(1, "shoal-judge-draw")
        self._reporter = ThreadPoolExecutor(1, "shoal-judge-report")
        self._posing: dict[int, asyncio.Task[Envelope]] = {}
        self._keeping: dict[int, asyncio.Task[None]] = {}
        self._scoring: dict[int, asyncio.Task[None]] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self._board: asyncio.Task[None] | None = None
        self._board_due = 0.0
        self._rows: list[dict[str, Any]] = []
        self._requests = 0
        self._full = False
        self.app = Starlette(
            routes=[
                Route("/", self._guarded(self.card)),
                Route("/health", self._guarded(self.health)),
                Route("/leaderboard", self._guarded(self.leaderboard)),
                Route("/ask", self._guarded(self.ask), methods=["POST"]),
                Route("/answer", self._guarded(self.answer), methods=["POST"]),
            ],
            exception_handlers={404: self._missing, 405: self._missing},
            lifespan=self._lifespan,
        )

    async def ask(self, request: Request) -> Response:
        ask, envelope = open_envelope(await _body(request), Ask)
        if self._full:
            raise Refused(Reason.full, "the judge's disk is full", 60.0)
        self.court.screen(ask)
        if not is_signed(envelope, ask.key):
            raise Refused(Reason.signature, "this is not signed by the key in it")
        if self.court.is_new(ask.key) and not self.doors.newcomer(_address(request)):
            raise Refused(Reason.newcomers, "too many new keys from your address", 60.0)
        session = self.court.open(ask, envelope.hash)
        if session.stage == Stage.open:
            return self._reply(await self._again(session))
        task = self._posing.get(session.id) or self._start(self._posing, session, self._pose(session, envelope))
        return self._reply(await asyncio.shield(task))

    async def answer(self, request: Request) -> Response:
        answer, envelope = open_envelope(await _body(request), Answer)
        session = self.court.answer(answer, envelope.hash)
        if not is_signed(envelope, answer.key):
            raise Refused(Reason.signature, "this is not signed by the key in it")
        if session.stage == Stage.open:
            self.court.take(session, envelope.hash)
            self._start(self._keeping, session, self._keep(session, envelope, answer.text))
        if keeping := self._keeping.get(session.id):
            await asyncio.shield(keeping)
        if scoring := self._scoring.get(session.id):
            await asyncio.wait({scoring}, timeout=SCORE_SECONDS)
            if not scoring.done():
                return self._reply(Receipt(**self._head(session), answer=session.answer, time=self.clock()))
        assert session.question is not None
        verdict = Verdict(
            **self._head(session),
            answer=session.answer,
            number=session.number,
            round=session.round,
            model=session.model,
            question=session.question,
            score=session.score,
            time=session.settled,
        )
        return self._reply(verdict)

    async def card(self, _: Request) -> Response:
        tasks, terms = self.examiner.tasks, self.terms
        labels, held_out = tasks.labels, tasks.config.held_out
        key, name, now = self.identity.id, self.identity.name, self.clock()
        card = Card(key, name, VERSION, now, labels, held_out, terms.limit, terms.interval, terms.work)
        return JSONResponse(msgspec.to_builtins(card))

    async def health(self, _: Request) -> Response:
        return JSONResponse(self.state())

    async def leaderboard(self, _: Request) -> Response:
        if self._board is None or (self._board.done() and self.clock() >= self._board_due):
            self._board = asyncio.ensure_future(self._count())
        if not self._rows:
            await asyncio.shield(self._board)
        return JSONResponse(self._rows)  # until there is a new one, the old one

    def state(self) -> dict[str, Any]:
        """How it stands, as plain data."""
        return {
            **self.counts,
            "under_way": len(self.court),
            "waiting_for_scores": sum(self.marking.waiting()),
            "connections": self.doors.open,
            "cut": self.doors.cut,
            "refused": dict(self.court.refused),
            "full": self._full,
        }

    async def _pose(self, session: Session, ask: Envelope) -> Envelope:
        try:
            envelope = await self._again(session)
            session.posed = envelope.hash
            await asyncio.wrap_future(self.records.append(*ask_rows(session, ask.statement, ask.signature)))
        except BaseException as error:
            self.court.withdraw(session)
            if isinstance(error, sqlite3.Error | UserError):
                raise Refused(Reason.busy, f"no question could be made and kept: {error}", 10.0) from None
            raise
        self.court.pose(session)
        self.counts["asked"] += 1
        return envelope

    async def _again(self, session: Session) -> Envelope:
        """The question of a session, the same bytes each time."""
        loop = asyncio.get_running_loop()
        task, question = await loop.run_in_executor(self._drawer, self.examiner.draw, session.key, session.number)
        session.task, session.question = task, question.id
        posed = Posed(
            **self._head(session),
            ask=session.ask,
            number=session.number,
            round=session.round,
            task=task,
            prompt=question.prompt,
            asked=session.asked,
            expires=session.expires,
        )
        return seal(posed, self.identity)

    async def _keep(self, session: Session, answer: Envelope, text: str) -> None:
        row = answer_row(session, self.clock(), answer.statement, answer.signature)
        try:
            await asyncio.wrap_future(self.records.append(row))
        except BaseException as error:
            self.court.give_back(session)
            if isinstance(error, sqlite3.Error):
                raise Refused(Reason.busy, f"the answer could not be kept: {error}", 2.0) from None
            raise
        self._start(self._scoring, session, self._score(session, text))

    async def _score(self, session: Session, text: str) -> None:
        assert session.question is not None
        marked = await asyncio.wrap_future(self.marking.submit(session.question, text, self.court.trusts(session)))
        self.court.mark(session, marked.score, marked.failure in TROUBLES)
        await self._settle(session, marked.failure)

    async def _settle(self, session: Session, failure: str = "") -> None:
        """Writes how it ended, as often as it takes."""
        pause = 1.0
        while True:
            try:
                await asyncio.wrap_future(self.records.append(outcome_row(session, failure)))
                break
            except sqlite3.IntegrityError:
                break  # it is there
            except sqlite3.Error:
                await asyncio.sleep(pause)
                pause = min(30.0, 2 * pause)
        self.counts[session.stage.value] += 1

    async def _count(self) -> None:
        """Makes the leaderboard. However long it takes, it is made a twentieth of the time at most."""
        began = self.clock()
        loop = asyncio.get_running_loop()
        self._rows = await loop.run_in_executor(self._reporter, reports.leaderboard_of, self.records.path, 1000)
        self._board_due = self.clock() + max(BOARD_SECONDS, 20 * (self.clock() - began))

    def _load(self, key: bytes) -> Node | None:
        session = self.records.last(key)
        if session is None:
            return None
        return Node(key, self.court.pace(), session.number + 1, session.round, session)

    def _start(self, book: dict[int, asyncio.Task[Any]], session: Session, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(work)
        book[session.id] = task
        task.add_done_callback(lambda done: (book.pop(session.id, None), done.cancelled() or done.exception()))
        return task

    def _head(self, session: Session) -> dict[str, Any]:
        return {"judge": self.identity.public, "key": session.key}

    def _reply(self, message: Envelope | Statement) -> Response:
        envelope = message if isinstance(message, Envelope) else seal(message, self.identity)
        return Response(encode(envelope), media_type="application/msgpack")

    def _guarded(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """`handler` with what comes before and after it: rates, refusals, and the number of requests at a time."""

        async def handle(request: Request) -> Response:
            address = _address(request)
            self._requests += 1
            try:
                if not self.doors.request(address):
                    raise Refused(Reason.address, "too many requests from your address", self.doors.rates.shut)
                if self._requests > REQUESTS:
                    raise Refused(Reason.busy, "too many requests at a time", 1.0)
                return await handler(request)
            except ClientDisconnect:
                return Response(status_code=400)
            except Malformed as error:
                refusal = Refused(Reason.malformed, str(error)[:200])
            except Refused as error:
                refusal = error
            finally:
                self._requests -= 1
            self.court.refused[refusal.reason] += 1
            if refusal.reason in OFFENCES:
                self.doors.offend(address)
            return self._refusal(refusal)

        return handle

    async def _missing(self, request: Request, error: Exception) -> Response:
        """What no honest program asks for."""
        self.doors.offend(_address(request))
        status = error.status_code if isinstance(error, HTTPException) else 404
        return Response(status_code=status, headers={"connection": "close"})

    def _refusal(self, refusal: Refused) -> Response:
        message = Refusal(refusal.reason.value, refusal.detail, self.clock(), refusal.retry_after)
        headers = {}
        if refusal.retry_after is not None:
            headers["retry-after"] = str(round(refusal.retry_after + 0.5))
        if refusal.reason in OFFENCES | {Reason.slow, Reason.address}:
            headers["connection"] = "close"
        status = STATUS.get(refusal.reason, 409)
        return Response(encode(message), status, headers, "application/msgpack")

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        await self._restore()
        ticker = asyncio.ensure_future(self._tick())
        try:
            yield
        finally:
            ticker.cancel()
            ending = [*self._keeping.values(), *self._scoring.values(), *self._settling]
            if ending:
                await asyncio.wait(ending, timeout=5.0)
            for pool in (self._drawer, self._reporter):
                pool.shutdown(wait=False, cancel_futures=True)

    async def _restore(self) -> None:
        found = list(self.records.unsettled())
        self.court.restore(session for session, _ in found)
        rows = [restart_row(session, self.clock()) for session, answer in found if not answer]
        if rows:
            await asyncio.wrap_future(self.records.append(*rows))
        for session, answer in found:
            if answer:
                text = msgspec.msgpack.decode(answer, type=Answer).text
                self._start(self._scoring, session, self._score(session, text))

    async def _tick(self) -> None:
        """Every second: whose time ran out, and whether there is room on the disk."""
        while True:
            for session in self.court.lapse():
                task = asyncio.ensure_future(self._settle(session))
                self._settling.add(task)
                task.add_done_callback(self._settling.discard)
            with contextlib.suppress(OSError):
                self._full = shutil.disk_usage(Path(self.records.path).parent).free < LEAST_FREE
            await asyncio.sleep(1.0)


async def _body(request: Request) -> bytes:
    """The request's body, in time and within its bounds."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BYTES:
                    raise Refused(Reason.size, f"more than {MAX_BYTES} bytes")
    except TimeoutError:
        raise Refused(Reason.slow, f"the request took more than {BODY_SECONDS:g} s to arrive") from None
    return bytes(data)


def _address(request: Request) -> str:
    return address_of(request.client.host) if request.client else ""
