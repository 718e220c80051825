"""A client of OpenAI-compatible servers: bounded in time and bytes, and tried again where that helps.

    async with ChatClient("http://localhost:8080/v1", timeout=120, requests=4) as client:
        choices = await client.complete({"model": "m", "messages": [...], "n": 4}, limit=2**20)

A server is a stranger: its text is parsed strictly, cut short, and shown as plain characters. The key comes from the
environment variable OPENAI_API_KEY and goes only into the request's header. A server that a file named gets it only if
OPENAI_BASE_URL is its address.
"""

import asyncio
import os
from typing import Any, Self, TypeVar

import httpx2
import msgspec

from shoal.errors import UserError
from shoal.untrusted import UNDECODABLE

T = TypeVar("T")

ATTEMPTS = 4
"""Times that a request is sent at most: again after a lost connection, "too many requests" and a server's own error."""
BACKOFF = 0.5
"""Seconds before the second attempt; twice as long before each further one."""
LONGEST_PAUSE = 30.0
"""Seconds that a server may ask for (Retry-After) at most."""
CONNECT_TIMEOUT = 10.0
LIST_LIMIT = 2**22
"""Bytes of a list of models, at most; hubs have long ones."""


class ChatError(Exception):
    """A request that gave nothing."""

    def __init__(self, reason: str, *, status: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class Message(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    """One answer."""

    message: Message
    finish_reason: str | None = None


class Choices(msgspec.Struct):
    choices: list[Choice]


class Model(msgspec.Struct):
    id: str


class Models(msgspec.Struct):
    data: list[Model]


class ChatClient:
    """Requests to one server, `requests` of them at a time. Once it is down, nothing more is sent."""

    def __init__(self, base: str, timeout: float, requests: int, sends_key: bool = True) -> None:
        """`sends_key`: whether the server gets the key. If not, only the one in OPENAI_BASE_URL gets it."""
        self.timeout = timeout
        self._key = api_key() if sends_key or is_own(base) else ""
        self._slots = asyncio.Semaphore(requests)
        self._down: ChatError | None = None
        # Uncompressed, so that a small body cannot grow; a redirection is not followed, so the key goes to one place.
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        local = httpx2.URL(base).host in ("localhost", "127.0.0.1", "::1")  # which no proxy reaches
        times = httpx2.Timeout(None, connect=min(CONNECT_TIMEOUT, timeout))
        self._http = httpx2.AsyncClient(base_url=base, headers=headers, timeout=times, trust_env=not local)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def complete(self, body: dict[str, Any], limit: int, attempts: int = ATTEMPTS) -> list[Choice]:
        """The answers to a chat, at least one. Raises `ChatError`; a reply of more than `limit` bytes is one too."""
        reply = _parsed(await self._request("POST", "chat/completions", body, limit, attempts), Choices)
        if not reply.choices:
            raise ChatError("it answered without choices")
        return reply.choices

    async def models(self) -> list[str]:
        """The names of the server's models. Raises `ChatError`."""
        return [model.id for model in _parsed(await self._request("GET", "models", None, LIST_LIMIT, 2), Models).data]

    async def _request(self, method: str, path: str, body: dict[str, Any] | None, limit: int, attempts: int) -> bytes:
        async with self._slots:  # also while it pauses: a server that is busy is not asked more
            for attempt in range(attempts):
                if self._down:
                    raise ChatError(self._down.reason, status=self._down.status)
                pause = BACKOFF * 2**attempt
                try:
                    async with asyncio.timeout(self.timeout):
                        status, headers, data = await self._send(method, path, body, limit)
                except TimeoutError:
                    raise self._broken(f"no answer within {self.timeout:g} seconds") from None
                except httpx2.TransportError as error:
                    fault = ChatError(self._clean(f"no connection: {error}" if str(error) else type(error).__name__))
                else:
                    if 200 <= status < 300:
                        return data
                    fault = ChatError(f"HTTP {status}: {self._clean(_message(data))}".rstrip(": "), status=status)
                    if status != 429 and status < 500:
                        # a request may be at fault by itself; a key, a model or an address is so for all
                        raise fault if status in (400, 413, 422) else self._broken(fault.reason, status)
                    pause = max(pause, _retry_after(headers))
                if attempt + 1 < attempts:
                    await asyncio.sleep(pause)
            raise self._broken(fault.reason, fault.status)

    async def _send(
        self, method: str, path: str, body: dict[str, Any] | None, limit: int
    ) -> tuple[int, httpx2.Headers, bytes]:
        """Status, headers and body. Beyond `limit` bytes an error's body is cut, and any other is a `ChatError`."""
        async with self._http.stream(method, path, json=body) as response:
            data = bytearray()
            async for piece in response.aiter_raw():
                data += piece
                if len(data) > limit:
                    if response.is_success:
                        raise ChatError(f"an answer of more than {limit} bytes")
                    break
            return response.status_code, response.headers, bytes(data)

    def _broken(self, reason: str, status: int = 0) -> ChatError:
        self._down = ChatError(reason, status=status)
        return self._down

    def _clean(self, text: str) -> str:
        """A server's words as one short line, without the key."""
        text = text.replace(self._key, "***") if self._key else text
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]


def is_own(base: str) -> bool:
    """Whether OPENAI_BASE_URL names this server: the one that the user's key is for."""
    return base.rstrip("/") == os.environ.get("OPENAI_BASE_URL", "").strip().rstrip("/")


def api_key() -> str:
    """The key in OPENAI_API_KEY, or "". Raises `UserError` for what no header can hold, without repeating it."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UserError("OPENAI_API_KEY holds characters that no key has")
    return key


def _parsed(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except UNDECODABLE as error:
        raise ChatError(f"it does not speak as OpenAI's servers do: {error}"[:200]) from None


def _message(data: bytes) -> str:
    """The message in the body of an error: `error.message` as OpenAI writes it, otherwise the body itself."""
    try:
        reply = msgspec.json.decode(data)
    except UNDECODABLE:
        return data[:1000].decode("utf-8", "replace")
    while isinstance(reply, dict):
        reply = next((reply[key] for key in ("error", "message", "detail") if key in reply), str(reply))
    return str(reply)


def _retry_after(headers: httpx2.Headers) -> float:
    """The pause that a server asks for, in seconds, within bounds; 0 where it asks for none."""
    try:
        return min(LONGEST_PAUSE, max(0.0, float(headers.get("retry-after", "0"))))
    except ValueError:
        return 0.0
