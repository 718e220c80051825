"""Who may answer in a contributor's name.

The guard of pages (`shoal_web.serving.guard`) stands before everything. A post changes something, so it needs more: it
must come from a page of this very origin, be JSON, and show in `X-Shoal` the word of `GET /api/state`, which no other
site can read.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Scope

from shoal_web.serving.guard import Access, Guard

MOST_BYTES: Final = 1 << 20
"""Of what is posted."""


class PostGuard(Guard):
    """A guard that also lets posts through, of its own page and of programs that know the word."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        super().__init__(app, access)
        self.word = secrets.token_urlsafe(24)
        """What a post must show."""

    def refusal(self, scope: Scope) -> Response | None:
        if scope["method"] != "POST":
            return super().refusal(scope)
        headers = Headers(scope=scope)
        refused = super().refusal({**scope, "method": "GET"})
        if refused is not None:
            return refused
        origins = headers.getlist("origin")
        if origins and origins not in ([f"http://{headers['host']}"], [f"https://{headers['host']}"]):
            return PlainTextResponse("posted by another site", 403)
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return PlainTextResponse("post JSON (Content-Type: application/json)", 415)
        if not hmac.compare_digest(headers.get("x-shoal", "").encode(), self.word.encode()):
            return PlainTextResponse("X-Shoal is missing or old: it is the word of GET /api/state", 403)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return PlainTextResponse(f"more than {MOST_BYTES} bytes", 413)
        return None
