"""The page in which a person answers and ranks, and the same for programs as JSON (docs/human.md).

GET  /api/state                  name, swarm, tasks, totals, and the word that posts must show (X-Shoal)
POST /api/question               {"want": "suited", "n": 1}  ->  questions that wait for an answer
POST /api/answer                 {"round": 17, "slot": 0, "answers": ["6"]}  ->  rewards
POST /api/skip                   {"round": 17, "slot": 0}
POST /api/comparison             {}  ->  answers of nodes, side by side
POST /api/ranking                {"id": "...", "places": [1, 2, 2]}  ->  who wrote what
GET  /api/journal?limit=&before= what was answered, how it scored, who learned from it
GET  /api/lessons?after=&wait=   who learned from it since; with `wait` it answers as soon as somebody has

A GET changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shoal.apps.human.contributor import Contributor, Unfit
from shoal.apps.human.door import MOST_BYTES, Door
from shoal.apps.human.gallery import Comparison, shown
from shoal.apps.human.journal import Entry, Learned
from shoal.apps.human.suited import SUITED
from shoal.apps.serving.bodies import BodyError, read_body
from shoal.apps.serving.places import Places
from shoal.apps.watch.guard import Access
from shoal.apps.watch.pages import OPEN, page_routes
from shoal.swarm.addresses import address_of

LONGEST_WAIT: Final = 30.0
WAITS: Final = 32
"""Requests that may wait for lessons at a time."""
BODY_SECONDS: Final = 20.0
"""For what is posted to arrive, from a telephone too."""
T = TypeVar("T", bound=msgspec.Struct)
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Place(msgspec.Struct, forbid_unknown_fields=True):
    """Which question."""

    round: Count
    slot: Count = 0


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """`{}`"""


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """Which questions."""

    want: str = SUITED
    n: int = 1
    fresh: bool = False


class Answers(msgspec.Struct, forbid_unknown_fields=True):
    """Completions of a question that waits."""

    answers: list[str]
    round: Count
    slot: Count = 0


class Ranked(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    places: list[int] = []
    """None: it is passed over."""


class Waiting:
    """A request that waits for lessons."""

    busy = True
    over = False
    """Whether its place went to another address, which has fewer."""

    def __init__(self, address: str) -> None:
        self.address = address

    def cut(self) -> None:
        self.over = True


class Refused(Exception):  # noqa: N818 (it is an answer, not a fault)
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def make_app(one: Contributor, access: Access) -> Door:
    """The page and the API of a contributor, behind its door."""
    waits: Places[Waiting] = Places(WAITS)

    def state(request: Request) -> dict[str, Any]:
        return {"word": door.word, **_state(one)}

    def question(given: Wanted) -> dict[str, Any]:
        return {"questions": [_question(one, entry) for entry in one.ask(given.want, given.n, given.fresh)]}

    def answer(given: Answers) -> dict[str, Any]:
        return _entry(one, one.answer(given.round, given.slot, given.answers), [])

    def skip(given: Place) -> dict[str, Any]:
        one.skip(given.round, given.slot)
        return {}

    def compare(given: Nothing) -> dict[str, Any]:
        comparison = one.compare()
        return {"comparison": comparison and _comparison(comparison)}

    def rank(given: Ranked) -> dict[str, Any]:
        if not given.places:
            one.dismiss(given.id)
            return {}
        comparison = one.rank(given.id, given.places)
        return {
            "answers": [
                {"text": shown(each.text), "reward": each.reward, "makers": sorted(each.makers), "place": place}
                for each, place in zip(comparison.answers, given.places, strict=True)
            ]
        }

    def journal(request: Request) -> dict[str, Any]:
        before = _number(request, "before", 2**62)
        entries = one.journal.answered(min(200, max(1, _number(request, "limit", 50))), before)
        lessons = one.journal.lessons_of(entries)
        return {"entries": [_entry(one, entry, lessons[entry.round, entry.slot]) for entry in entries]}

    async def lessons(request: Request) -> Response:
        after, wait = _number(request, "after", 0), min(LONGEST_WAIT, _number(request, "wait", 0))
        end = time.monotonic() + wait
        waiting = Waiting(address_of(request.client.host) if request.client else "")
        if wait and not waits.enter(waiting, proven=True):
            raise Refused(503, f"{WAITS} requests wait for lessons")
        try:
            while True:
                found = await run_in_threadpool(one.journal.lessons, after)
                if found or time.monotonic() >= end or waiting.over or await request.is_disconnected():
                    return answered({"lessons": found, "last": found[-1].number if found else after})
                await asyncio.sleep(0.5)
        finally:
            waits.leave(waiting)

    async def refused(request: Request, error: Exception) -> Response:
        return answered({"error": str(error)}, getattr(error, "status", 500))

    async def failed(request: Request, error: Exception) -> Response:
        return answered({"error": "an error of this program's own; it has said more where it runs"}, 500)

    routes: list[BaseRoute] = [
        *page_routes(Path(__file__).parent / "static"),
        Route("/api/state", _get(state)),
        Route("/api/question", _post(Wanted, question), methods=["POST"]),
        Route("/api/answer", _post(Answers, answer), methods=["POST"]),
        Route("/api/skip", _post(Place, skip), methods=["POST"]),
        Route("/api/comparison", _post(Nothing, compare), methods=["POST"]),
        Route("/api/ranking", _post(Ranked, rank), methods=["POST"]),
        Route("/api/journal", _get(journal)),
        Route("/api/lessons", lessons),
    ]
    app = Starlette(routes=routes, exception_handlers={Refused: refused, Exception: failed})
    door = Door(app, access, OPEN)
    return door


def answered(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _get(work: Callable[[Request], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
    """A route that reads."""

    async def endpoint(request: Request) -> Response:
        return answered(await run_in_threadpool(_tried, work, request))

    return endpoint


def _post(kind: type[T], work: Callable[[T], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
    """A route that does something with what was posted, if that is of this kind."""

    async def endpoint(request: Request) -> Response:
        try:
            given = msgspec.json.decode(await read_body(request, MOST_BYTES, BODY_SECONDS), type=kind)
        except ClientDisconnect:
            return Response(status_code=400)
        except BodyError as error:
            raise Refused(error.status, str(error)) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(400, f"not what belongs here: {error}") from None
        return answered(await run_in_threadpool(_tried, work, given))

    return endpoint


def _tried(work: Callable[[Any], dict[str, Any]], given: Any) -> dict[str, Any]:
    """What `work` makes of it; what it refuses is the asker's to know."""
    try:
        return work(given)
    except LookupError as error:
        raise Refused(404, str(error.args[0] if error.args else error)) from None
    except (Unfit, ValueError) as error:
        raise Refused(400, str(error)) from None


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not text.isascii() or len(text) > 16:
        raise Refused(400, f"{name} is no number")
    return int(text)


def _state(one: Contributor) -> dict[str, Any]:
    status = one.link.status()
    return {
        "name": one.identity.name,
        "id": one.identity.id,
        "kind": one.kind,
        "swarm": one.swarm,
        "private": status["private"],
        "links": status["links"],
        "peers": status["peers"],
        "silo": status["silo"],
        "note": status["note"].removesuffix("; training goes on").removeprefix("alone: "),
        "tasks": [
            {
                "label": each.label,
                "answered": each.answered,
                "success": each.success,
                "others": each.others,
            }
            for each in one.figures()
        ],
        "totals": one.journal.totals(),
        "most": min(8, one.config.policy.num_generations),
        "longest": one.admission.limits.max_characters,
        "nodes": [
            {
                "name": notice.name,
                "model": notice.model and shown(notice.model),
                "round": notice.round,
                "reward": notice.reward,
                "time": notice.time,
            }
            for notice in one.learners.notices()[:100]
        ],
    }


def _question(one: Contributor, entry: Entry) -> dict[str, Any]:
    return {
        "round": entry.round,
        "slot": entry.slot,
        "task": entry.task,
        "prompt": msgspec.to_builtins(entry.question.prompt),
        "text": entry.question.text,
        "tagged": one.specs[entry.task].answer == "tag",
        "longest": one.admission.limits.max_characters,
    }


def _entry(one: Contributor, entry: Entry, lessons: list[Learned]) -> dict[str, Any]:
    return {
        "round": entry.round,
        "slot": entry.slot,
        "task": entry.task,
        "text": entry.question.text,
        "answers": entry.answers,
        "rewards": entry.rewards,
        "answered": entry.answered,
        "lessons": [msgspec.to_builtins(each) for each in lessons],
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "id": comparison.id,
        "text": comparison.question.text,
        "task": comparison.question.id.task,
        "makers": comparison.makers,
        "answers": [shown(answer.text) for answer in comparison.answers],
    }
