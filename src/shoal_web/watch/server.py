"""The application: the page and its data as JSON under `/api`, behind the guard.

An open page asks for `/api/runs` again and again. While it does, sources look for something new, and their versions in
the answer tell the page what has changed.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
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
from starlette.types import ASGIApp, Receive, Scope, Send

from shoal_web.serving.guard import Access, Guard
from shoal_web.serving.pages import application, json_response
from shoal_web.serving.server import is_loopback
from shoal_web.watch.asking import Asker
from shoal_web.watch.source import (
    AskQuery,
    BusyError,
    CurveQuery,
    MissingError,
    Parameters,
    RolloutQuery,
    RowQuery,
    StoryQuery,
)
from shoal_web.watch.sources import Sources

STATIC = Path(__file__).parent / "static"
LISTED = 500  # sources in the list
THREADS = 120  # requests that are answered at a time
ASKED: dict[str, type[Parameters]] = {
    "summary": Parameters,
    "curve": CurveQuery,
    "story": StoryQuery,
    "settings": Parameters,
    "graph": Parameters,
    "rollouts": RolloutQuery,
    "rollout": RowQuery,
}
"""Methods of a source, by their last part of the address, and their parameters."""


class Spoken(StreamingResponse):
    """Lines of JSON as they come. It ends what makes them when nobody reads on."""

    def __init__(self, lines: AsyncGenerator[bytes]) -> None:
        # nothing between here and the page gathers it
        super().__init__(lines, media_type="application/x-ndjson", headers={"Content-Encoding": "identity"})
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._lines.aclose()


def make_app(sources: Sources, access: Access) -> ASGIApp:
    """The page of `sources`."""
    limiter = anyio.CapacityLimiter(THREADS)

    async def answered(
        request: Request, model: type[Parameters], answer: Callable[[Any], Awaitable[Response]]
    ) -> Response:
        """What `answer` makes of the parameters, or what is wrong."""
        given = request.query_params.multi_items()
        try:
            if len(dict(given)) != len(given):
                return json_response({"error": "a parameter is given twice"}, 400)
            return await answer(model.model_validate(dict(given)))
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, wrong["loc"]))[:100]
            return json_response({"error": f"{where}: {wrong['msg']}"}, 400)
        except (MissingError, BusyError) as error:
            return json_response({"error": str(error)}, 404 if isinstance(error, MissingError) else 503)

    async def listed(request: Request) -> Response:
        async def brief(query: Parameters) -> Response:
            made = await anyio.to_thread.run_sync(
                lambda: [source.brief() for source in sources.all()[:LISTED]], limiter=limiter
            )
            return json_response({"runs": made})

        answer = await answered(request, Parameters, brief)
        answer.background = BackgroundTask(sources.look)  # once it is sent, on a thread
        return answer

    async def asked(request: Request) -> Response:
        id, what = request.path_params["id"], request.path_params["what"]
        if what not in ASKED:
            return json_response({"error": "there is no such thing"}, 404)

        def found(query: Parameters) -> Any:
            source = sources.get(id)
            if what == "summary":
                return source.summary()
            method = getattr(source, what, None)
            if method is None:
                raise MissingError(f"this {source.kind} has no {what}")
            return method(query)

        async def told(query: Parameters) -> Response:
            return json_response(await anyio.to_thread.run_sync(found, query, limiter=limiter))

        return await answered(request, ASKED[what], told)

    asker = Asker()

    async def spoken(request: Request) -> Response:
        """Streams what the models of a run say. It computes, so only a page on this machine may ask: no link, no other
        machine."""
        host = request.client.host if request.client else ""
        if access.token is not None or not is_loopback(host) or request.headers.get("x-shoal") != "ask":
            return json_response({"error": "only a page that this machine opens may ask, without --listen"}, 403)

        async def told(query: AskQuery) -> Response:
            path = sources.get(request.path_params["id"]).path
            if path is None:
                raise MissingError("there is no model here to ask")
            answers = asker.ask(path, query.text)
            await anext(answers)
            return Spoken(answers)

        return await answered(request, AskQuery, told)

    routes = [Route("/api/runs", listed), Route("/api/runs/{id:str}/ask", spoken)]
    app = application(STATIC, [*routes, Route("/api/runs/{id:str}/{what:str}", asked)])
    return Guard(GZipMiddleware(app, minimum_size=4096, compresslevel=4), access)
