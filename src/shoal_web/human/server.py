"""The page for people, and the same for programs as JSON (docs/guides/human.md). A GET changes nothing."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from pydantic import ConfigDict, Field, ValidationError, validate_call
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from shoal.config.answer_form import in_form
from shoal.config.display_name import full_name
from shoal.errors import UserError
from shoal.tasks.pictures import data_address
from shoal.untrusted import UNDECODABLE
from shoal_web.human.contributor import NEEDED, Contributor
from shoal_web.human.journal import Entry
from shoal_web.serving.guard import MOST_BYTES, Access, PostGuard
from shoal_web.serving.pages import application, json_response, read_body

LONGEST_RIGHT: Final = 2000  # characters of a right answer that are shown
BODY_SECONDS: Final = 20.0  # for a post to arrive, from a phone too
PICTURE_WIDTH: Final = 256  # pixels of a question's picture on the page, about
Count = Annotated[int, Field(ge=0, le=2**53)]
Data = dict[str, Any]


def make_app(one: Contributor, access: Access) -> PostGuard:
    """The page and the API of a contributor, behind its guard."""

    def state() -> Data:
        return {"word": guard.word, **_state(one)}

    def question(want: str = NEEDED, n: int = 1) -> Data:
        return {"questions": [_question(one, entry) for entry in one.ask(want, n)]}

    def answer(round: Count, answers: list[str]) -> Data:
        return _entry(one, one.answer(round, answers))

    def skip(round: Count) -> Data:
        one.journal.settle(round)
        return {}

    def journal(limit: Annotated[int, Field(ge=1, le=200)] = 50, before: Count = 2**53) -> Data:
        return {"entries": [_entry(one, entry) for entry in one.journal.answered(limit, before)]}

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return json_response({"error": error.detail}, error.status_code)

    async def unable(request: Request, error: Exception) -> Response:
        return json_response({"error": str(error)}, 503)

    api = [
        _route("/api/state", state, "GET"),
        _route("/api/question", question),
        _route("/api/answer", answer),
        _route("/api/skip", skip),
        _route("/api/journal", journal, "GET"),
    ]
    # A full disk, or a process that scores and does not start: the same may work later.
    handlers = {HTTPException: refused, sqlite3.Error: unable, UserError: unable}
    guard = PostGuard(application(Path(__file__).parent / "static", api, handlers), access)
    return guard


def _route(path: str, work: Callable[..., Data], method: str = "POST") -> Route:
    """Passes what is posted, or the parameters of a GET, to the arguments of `work`, if they are what these say."""
    checked = validate_call(config=ConfigDict(strict=method == "POST"))(work)

    async def endpoint(request: Request) -> Response:
        try:
            given: Data = dict(request.query_params)
            if method == "POST":
                given = msgspec.json.decode(await read_body(request, MOST_BYTES, BODY_SECONDS), type=Data)
            return json_response(await run_in_threadpool(lambda: checked(**given)))
        except ClientDisconnect:
            return Response(status_code=400)
        except ValidationError as error:
            fault = error.errors()[0]
            raise HTTPException(400, f"the request is wrong: {fault['loc'][-1]}: {fault['msg']}") from None
        except UNDECODABLE as error:
            raise HTTPException(400, f"the request is wrong: {error}") from None
        except LookupError as error:
            raise HTTPException(404, str(error)) from None
        except ValueError as error:
            raise HTTPException(400, str(error)) from None

    return Route(path, endpoint, methods=[method])


def _state(one: Contributor) -> Data:
    status = one.member.status()
    return {
        "name": full_name(one.identity.name, one.config.network.display_name),
        "id": one.identity.id,
        "kind": one.kind,
        "swarm": one.swarm,
        **{name: status[name] for name in ("private", "links", "peers", "silo")},
        "note": status["note"].removesuffix("; training goes on").removeprefix("alone: "),
        "tasks": [{"label": label, "others": success} for label, success in one.success().items()],
        "totals": one.journal.totals(),
        "most": min(8, one.config.policy.num_generations),
        "longest": one.member.admission.limits.max_characters,
    }


def _asked(entry: Entry) -> Data:
    asked = {"round": entry.round, "task": entry.task, "text": entry.question.text}
    return asked | {"pictures": [data_address(picture, PICTURE_WIDTH) for picture in entry.question.pictures]}


def _question(one: Contributor, entry: Entry) -> Data:
    form = one.specs[entry.task].answer
    return {
        **_asked(entry),
        "prompt": msgspec.to_builtins(entry.question.prompt),
        "marks": in_form("|", form).split("|") if form in ("tag", "boxed") else None,  # around the answer
        "longest": one.member.admission.limits.max_characters,
    }


def _entry(one: Contributor, entry: Entry) -> Data:
    answered = {name: getattr(entry, name) for name in ("answers", "rewards", "answered", "learners")}
    right = one.right_answer(entry)
    return {**_asked(entry), **answered, "right": right and right[:LONGEST_RIGHT]}
