"""The application: the page, the API and the news behind the guard."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from shoal.apps.watch.api import api_routes, json_response
from shoal.apps.watch.guard import Access, Guard
from shoal.apps.watch.live import Live
from shoal.apps.watch.pages import OPEN, STATIC, page_routes
from shoal.apps.watch.source import Sources


def make_app(sources: Sources, access: Access, more: Sequence[BaseRoute] = ()) -> ASGIApp:
    """The window onto `sources`. `more`: routes of other pages; the guard stands before them too."""
    live = Live(sources)

    async def failed(request: Request, error: Exception) -> Response:
        return json_response({"error": "an error of this program's own; it has said more where it runs"}, 500)

    routes: list[BaseRoute] = [
        *page_routes(STATIC),
        Route("/events", live.events),
        *api_routes(sources),
        *more,
    ]
    app = Starlette(routes=routes, exception_handlers={Exception: failed})
    return Guard(GZipMiddleware(app, minimum_size=4096, compresslevel=4), access, OPEN)
