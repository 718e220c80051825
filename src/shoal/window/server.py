"""The application: the page, the API and the news behind the guard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from shoal.window.api import api_routes, json_response
from shoal.window.guard import Access, Guard
from shoal.window.live import Live
from shoal.window.source import Sources

STATIC = Path(__file__).parent / "static"
OPEN = ("/enter", "/static/style.css", "/static/icon.svg")
"""What is shown to those without the token: where to enter it."""


class Static(StaticFiles):
    """Files of the page. Those under `vendor/` have their version in their name and may be kept."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        kept = "public, max-age=31536000, immutable" if path.startswith("vendor") else "no-cache"
        response.headers["Cache-Control"] = kept
        return response


def make_app(sources: Sources, access: Access, more: Sequence[BaseRoute] = ()) -> ASGIApp:
    """The window onto `sources`. `more`: routes of other pages; the guard stands before them too."""
    live = Live(sources)

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    async def enter(request: Request) -> Response:
        return FileResponse(STATIC / "enter.html", headers={"Cache-Control": "no-cache"})

    async def failed(request: Request, error: Exception) -> Response:
        return json_response({"error": "an error of this program's own; it has said more where it runs"}, 500)

    routes: list[BaseRoute] = [
        Route("/", page),
        Route("/enter", enter),
        Route("/events", live.events),
        *api_routes(sources),
        Mount("/static", Static(directory=STATIC)),
        *more,
    ]
    app = Starlette(routes=routes, exception_handlers={Exception: failed})
    return Guard(GZipMiddleware(app, minimum_size=4096, compresslevel=4), access, OPEN)
