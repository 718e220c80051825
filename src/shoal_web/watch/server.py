"""The application: the page and its data as JSON under `/api`, behind the guard.

An open page asks for `/api/runs` again and again. While it does, sources look for something new, and their versions in
the answer tell the page what has changed.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from pydantic import ValidationError
from starlette.background import BackgroundTask
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from shoal_web.serving.guard import Access, Guard
from shoal_web.serving.pages import application, json_response
from shoal_web.serving.server import is_loopback
from shoal_web.watch.asking import Asker
from shoal_web.watch.source import (
    LONGEST,
    AskQuery,
    BusyError,
    CurveQuery,
    GraphQuery,
    MissingError,
    Parameters,
    RolloutQuery,
    RowQuery,
    StoryQuery,
)
from shoal_web.watch.sources import Sources

STATIC = Path(__file__).parent / "static"
LISTED = 500
"""Sources in the list."""
THREADS, EACH = 120, 12
"""Requests that are answered at a time, and of them about one source, so that a slow one stops no other."""
ASKED: dict[str, type[Parameters]] = {
    "summary": Parameters,
    "curve": CurveQuery,
    "story": StoryQuery,
    "settings": Parameters,
    "graph": GraphQuery,
    "rollouts": RolloutQuery,
    "rollout": RowQuery,
}
"""Methods of a source, by their last part of the address, and their parameters."""


def make_app(sources: Sources, access: Access) -> ASGIApp:
    """The page of `sources`."""
    under_way = Counter[str]()
    limiter = anyio.CapacityLimiter(THREADS)

    async def answered(request: Request, model: type[Parameters], ask: Callable[[Any], Any]) -> Response:
        """The JSON of what `ask` gives, on a thread, or what is wrong."""
        given = request.query_params.multi_items()
        if len(dict(given)) != len(given):
            return json_response({"error": "a parameter is given twice"}, 400)
        try:
            query = model.model_validate(dict(given))
            return json_response(await anyio.to_thread.run_sync(ask, query, limiter=limiter))
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, wrong["loc"]))[:100]
            return json_response({"error": f"{where}: {wrong['msg']}"}, 400)
        except MissingError as error:
            return json_response({"error": str(error)}, 404)
        except BusyError as error:
            return json_response({"error": str(error)}, 503)

    async def listed(request: Request) -> Response:
        def brief(query: Parameters) -> Any:
            return {"runs": [source.brief() for source in sources.all()[:LISTED]]}

        answer = await answered(request, Parameters, brief)
        answer.background = BackgroundTask(sources.look)  # once it is sent, on a thread
        return answer

    async def asked(request: Request) -> Response:
        id, what = request.path_params["id"], request.path_params["what"]
        if what not in ASKED:
            return json_response({"error": "there is no such thing"}, 404)
        if under_way[id] >= EACH:
            return json_response({"error": "too many requests about this run at a time; ask again"}, 503)

        def ask(query: Parameters) -> Any:
            source = sources.get(id)
            if what == "summary":
                return source.summary()
            method = getattr(source, what, None)
            if method is None:
                raise MissingError(f"this {source.kind} has no {what}")
            return method(query)

        under_way[id] += 1
        try:
            return await answered(request, ASKED[what], ask)
        finally:
            under_way[id] -= 1
            if not under_way[id]:
                del under_way[id]

    asker = Asker()

    async def spoken(request: Request) -> Response:
        """Streams what the models of a run say. It computes, so only a page on this machine may ask: no link, no other
        machine."""
        host = request.client.host if request.client else ""
        if access.token is not None or not is_loopback(host) or request.headers.get("x-shoal") != "ask":
            return json_response({"error": "only a page that this machine opens may ask, without --listen"}, 403)
        try:
            query = AskQuery.model_validate(dict(request.query_params))
            path = sources.get(request.path_params["id"]).path
            if path is None:
                raise MissingError("there is no model here to ask")
            await anyio.to_thread.run_sync(asker.begin, path, query.text)
        except ValidationError:
            return json_response({"error": f"a question has 1 to {LONGEST} characters"}, 400)
        except MissingError as error:
            return json_response({"error": str(error)}, 404)
        except BusyError as error:
            return json_response({"error": str(error)}, 503)

        async def lines() -> AsyncIterator[bytes]:
            try:
                while line := await anyio.to_thread.run_sync(asker.next, limiter=limiter):
                    yield line + b"\n"
            finally:
                asker.stop()

        # as it comes: nothing between here and the page gathers it
        return StreamingResponse(lines(), media_type="application/x-ndjson", headers={"Content-Encoding": "identity"})

    routes = [Route("/api/runs", listed), Route("/api/runs/{id:str}/ask", spoken)]
    app = application(STATIC, [*routes, Route("/api/runs/{id:str}/{what:str}", asked)])
    return Guard(GZipMiddleware(app, minimum_size=4096, compresslevel=4), access)
