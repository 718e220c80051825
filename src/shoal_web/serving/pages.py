"""The files and answers of a page: its own folder under `/static/`; base.css, the icon and the token page for all.

A request's body is bounded in size and time (`read_body`)."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC: Final = Path(__file__).parent / "static"


class Static(StaticFiles):
    """Browsers may keep the files in `vendor/`, which have their version in their name."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        kept = "public, max-age=31536000, immutable" if path.startswith("vendor") else "no-cache"
        response.headers["Cache-Control"] = kept
        return response


def application(folder: Path, api: Sequence[BaseRoute], handlers: Mapping[Any, Any] | None = None) -> Starlette:
    """The page in `folder` with its API. `handlers`: of exceptions other than errors of its own."""

    async def failed(request: Request, error: Exception) -> Response:
        return json_response({"error": "shoal has an error of its own: see where it runs"}, 500)

    entrance = (STATIC / "enter.html").read_bytes()  # read once: strangers ask for it
    again = entrance.replace(b" hidden>", b">")

    async def page(request: Request) -> Response:
        return FileResponse(folder / "index.html", headers={"Cache-Control": "no-cache"})

    async def enter(request: Request) -> Response:
        shown = again if "wrong" in request.query_params else entrance
        return HTMLResponse(shown, headers={"Cache-Control": "no-cache"})

    files = Static(directory=folder, packages=[("shoal_web.serving", "static")])
    routes = [Route("/", page), Route("/enter", enter), Mount("/static", files), *api]
    return Starlette(routes=routes, exception_handlers={**(handlers or {}), Exception: failed})


def json_response(data: Any, status: int = 200) -> Response:
    """msgspec writes NaN and infinities as null."""
    return Response(msgspec.json.encode(data), status, media_type="application/json")


async def read_body(request: Request, most: int, seconds: float = 5.0) -> bytes:
    """The body of `request`, of at most `most` bytes, which come within `seconds`. Raises `HTTPException`."""
    data = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                data += chunk
                if len(data) > most:
                    raise HTTPException(413, f"more than {most} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the request took more than {seconds:g} s to arrive") from None
    return bytes(data)
