"""Files that pages have in common: the window's and, in its own folder, that of `shoal human`.

A page has its files under `/static/`; what is not in its own folder is looked for in the window's: the colours and the
first rules of both (base.css), the icon, and where a token is entered.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC: Final = Path(__file__).parent / "static"
OPEN: Final = ("/enter", "/static/base.css", "/static/icon.svg")
"""What is shown to those without the token: where to enter it."""


class Static(StaticFiles):
    """Files of a page. Those under `vendor/` have their version in their name and may be kept."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        kept = "public, max-age=31536000, immutable" if path.startswith("vendor") else "no-cache"
        response.headers["Cache-Control"] = kept
        return response


def page_routes(folder: Path) -> list[BaseRoute]:
    """`/`, `/enter` and `/static/` of the page whose files are in `folder`."""

    entrance = (STATIC / "enter.html").read_bytes()  # once: strangers ask for it

    async def page(request: Request) -> Response:
        return FileResponse(folder / "index.html", headers={"Cache-Control": "no-cache"})

    async def enter(request: Request) -> Response:
        return HTMLResponse(entrance, headers={"Cache-Control": "no-cache"})

    files = Static(directory=folder, packages=[("shoal.apps.watch", "static")])
    return [Route("/", page), Route("/enter", enter), Mount("/static", files)]
