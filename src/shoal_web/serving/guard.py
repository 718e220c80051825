"""Who may see a page, and what a browser may do with it.

- Only GET and HEAD (`Guard`): nothing can be changed.
- Only under names of this machine: another site whose name points here (DNS rebinding) gets nothing.
- No other site's page may ask (`Sec-Fetch-Site`), and no answer lets it read (no CORS).
- With a token, only who shows it: once in the address, which sets a cookie, or as a bearer token.
- A post changes something, so it needs more (`PostGuard`).
- `POLICY`: scripts and styles from here alone, nothing from elsewhere, no text that becomes markup or code.
"""

import hashlib
import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types default",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN = frozenset({"/enter", "/static/base.css", "/static/icon.svg"})
"""What everybody may see: where to enter the token."""
SHORTEST = 16  # characters of a token, at least
MOST_BYTES: Final = 1 << 20  # of what is posted


@dataclass(frozen=True)
class Access:
    """Under which names a page answers, and to whom."""

    names: frozenset[str] = LOOPBACK
    """Of hosts, in lower case."""
    any_address: bool = False
    """Also under any IP address, which no other site's name can imitate."""
    token: str | None = field(default=None, repr=False)

    def is_here(self, host: str) -> bool:
        """Whether the header `Host` names this machine."""
        if host.startswith("["):
            host = host[1:].partition("]")[0]
        elif host.count(":") == 1:
            host = host.partition(":")[0]
        if host.lower() in self.names:
            return True
        try:
            return self.any_address and bool(ipaddress.ip_address(host))
        except ValueError:
            return False

    def cookie(self) -> str:
        """The cookie of who showed the token, which it does not reveal."""
        return hmac.new((self.token or "").encode(), b"shoal watch", hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def lets_in(self, headers: Headers, cookie_name: str) -> bool:
        """Whether a request has the token, as a bearer token or a cookie."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(given):
            return True
        shown = cookie_parser(headers.get("cookie", "")).get(cookie_name, "")
        return hmac.compare_digest(shown.encode(), self.cookie().encode())


class Guard:
    """Stands before the whole application."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        refused = self.refusal(scope)
        is_stranger = refused is not None or (self._access.token is not None and scope["path"] in OPEN)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
                if is_stranger:
                    headers["Connection"] = "close"  # one answer to a connection, however many requests are in it
            await send(message)

        await (refused or self._app)(scope, receive, guarded)

    def refusal(self, scope: Scope) -> Response | None:
        """What to answer instead, if the application may not."""
        headers, access, path = Headers(scope=scope), self._access, scope["path"]
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this page changes nothing: only GET and HEAD", 405, {"Allow": "GET, HEAD"})
        if len(headers.getlist("host")) != 1 or not access.is_here(headers["host"]):
            return PlainTextResponse(
                "this name is not this machine's: use the address that was printed, or --name", 421
            )
        site = headers.get("sec-fetch-site", "none")
        top = path == "/" and headers.get("sec-fetch-mode", "navigate") == "navigate"
        if site not in ("none", "same-origin") and not top:
            return PlainTextResponse("asked by another site", 403)
        if access.token is None or path in OPEN:
            return None
        cookie = f"shoal-watch-{(scope.get('server') or ('', 0))[1]}"
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if path == "/" and len(given) == 1:
            if not access.is_token(given[0].strip()):
                return RedirectResponse("/enter?wrong=1", 303)
            answer = RedirectResponse("/", 303)
            # Not strict: a browser would not send it after a link in another site's page, such as webmail.
            answer.set_cookie(cookie, access.cookie(), max_age=30 * 86400, httponly=True, samesite="lax")
            return answer
        if access.lets_in(headers, cookie):
            return None
        if path == "/":
            return RedirectResponse("/enter", 303)
        return PlainTextResponse("the token is missing or wrong", 401, {"WWW-Authenticate": "Bearer"})


class PostGuard(Guard):
    """A guard that also lets posts through: of a page of this very origin, in JSON, and with the word of
    `GET /api/state` in `X-Shoal`, which no other site can read."""

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
