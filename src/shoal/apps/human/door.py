"""Who may answer in a contributor's name.

The guard of the window (`shoal.apps.watch.guard`) stands before everything: names of this machine alone, no pages of
other sites, a token for other machines, and a policy under which text stays text. To change something it takes more: a
page of this very origin, JSON, and the `X-Shoal` header with what `GET /api/state` told, which no other site can read.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Scope

from shoal.apps.watch.guard import Access, Guard

MOST_BYTES: Final = 1 << 20
"""Of what is posted."""


class Door(Guard):
    """The guard, which lets posts through that come from this page, or from a program that was told."""

    def __init__(self, app: ASGIApp, access: Access, open_paths: Iterable[str] = ()) -> None:
        super().__init__(app, access, open_paths)
        self.word = secrets.token_urlsafe(24)
        """What a post must show."""

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["method"] != "POST":
            return super()._refusal(scope)
        headers = Headers(scope=scope)
        refused = super()._refusal({**scope, "method": "GET"})
        if refused is not None:
            return refused
        origins = headers.getlist("origin")
        if origins and origins not in ([f"http://{headers['host']}"], [f"https://{headers['host']}"]):
            return PlainTextResponse("posted by another site", 403)
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return PlainTextResponse("post JSON (Content-Type: application/json)", 415)
        if not hmac.compare_digest(headers.get("x-shoal", "").encode(), self.word.encode()):
            return PlainTextResponse("X-Shoal is missing or old: GET /api/state tells it (word)", 403)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return PlainTextResponse(f"more than {MOST_BYTES} bytes", 413)
        return None
