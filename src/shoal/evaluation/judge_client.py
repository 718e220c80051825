"""A node's way to one judge: ask, answer, and check what comes back. It never waits long, and raises `Unheard` only.

    judge = Judge("https://judge.example.org#6f0c...", identity)
    asked = judge.ask(round=7, model="guppy", in_swarm=True)
    verdict = judge.answer(asked, "4")          # a Verdict, or a Receipt: the score comes later

Behind `#` stands the judge's key. Without it the key is taken on trust at the first contact, and must stay the same
from then on. A judge is a stranger too: its replies are bounded in size and time, and count only with its signature
under the very statement that was sent.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2
import msgspec

from shoal.errors import UserError
from shoal.evaluation.judge_messages import (
    MAX_ANSWER,
    MAX_BYTES,
    Answer,
    Ask,
    Card,
    Envelope,
    Malformed,
    Posed,
    Receipt,
    Refusal,
    S,
    Verdict,
    encode,
    is_signed,
    open_envelope,
    seal,
    work_of,
)
from shoal.identity.keys import Identity, name_of
from shoal.rollout import Question, QuestionId

MAX_WORK = 20
"""Bits: what takes more than some seconds is not worth a question."""
MAX_PROMPT = 65_536
"""Characters of a question."""


class Unheard(Exception):  # noqa: N818 (a judge that cannot be reached is no fault of the node's)
    """There is no question, or no score. The message says why, in a few words."""

    def __init__(self, why: str, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(why)
        self.reason, self.retry_after = reason, retry_after


@dataclass(frozen=True)
class Asked:
    """A question that a judge has posed."""

    question: Question
    """Its id is made up: the judge's own is told with the score."""
    posed: Posed
    hash: bytes


class Judge:
    """One judge. Used by one thread at a time. Raises `UserError` for what is no address or key."""

    def __init__(
        self, address: str, identity: Identity, timeout: float = 5.0, clock: Callable[[], float] = time.time
    ) -> None:
        """`timeout`: seconds that a question or a score may take in all."""
        self.url, self._key = checked(address)
        self.identity, self.timeout, self._clock = identity, timeout, clock
        self._offset = 0.0
        self._work = 0
        self._met = False
        local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")  # which no proxy reaches
        self._http = httpx2.Client(timeout=timeout, trust_env=not local)

    @property
    def key(self) -> bytes:
        """Its key; empty while it is neither given nor known."""
        return self._key

    @property
    def name(self) -> str:
        return name_of(self._key) if self._key else self.url

    def ask(self, round: int, model: str, in_swarm: bool) -> Asked:
        """The question after `round`."""
        end = time.monotonic() + self.timeout
        if not self._met:
            self._meet(end)
        nonce, now = secrets.token_bytes(16), max(0.0, self._clock() + self._offset)
        ask = Ask(
            judge=self._key,
            key=self.identity.public,
            nonce=nonce,
            time=now,
            round=round,
            model=_encodable(model)[:256],
            in_swarm=in_swarm,
            work=self._work,
        )
        sent = seal(ask, self.identity)
        posed, envelope = self._exchange("ask", sent, end, Posed)
        if (posed.ask, posed.key, posed.round) != (sent.hash, self.identity.public, round):
            raise Unheard("the judge replied to something else")
        if not posed.prompt or sum(len(message.content) for message in posed.prompt) > MAX_PROMPT:
            raise Unheard("the judge's question is empty or too long")
        made_up = QuestionId(posed.task, "judge", self._key.hex(), int.from_bytes(envelope.hash[:8], "big") >> 1, 0)
        return Asked(Question(made_up, posed.prompt), posed, envelope.hash)

    def answer(self, asked: Asked, text: str) -> Verdict | Receipt:
        """The score of `text`, which is cut where it is too long; where it takes longer, a receipt."""
        end = time.monotonic() + self.timeout
        text = _encodable(text)[:MAX_ANSWER]
        answer = Answer(judge=self._key, key=self.identity.public, posed=asked.hash, text=text)
        sent = seal(answer, self.identity)
        while True:
            reply, _ = self._exchange("answer", sent, end, Verdict, Receipt)
            if not isinstance(reply, Verdict | Receipt) or (reply.answer, reply.key) != (
                sent.hash,
                self.identity.public,
            ):
                raise Unheard("the judge replied to something else")
            if isinstance(reply, Verdict) or time.monotonic() + 1.5 > end:
                return reply
            time.sleep(0.5)

    def close(self) -> None:
        self._http.close()

    def _meet(self, end: float) -> None:
        """Looks at the judge's card: its key, its clock, the work it wants of a new key."""
        status, data = self._request("GET", "", None, end)
        try:
            card = msgspec.json.decode(data, type=Card) if status == 200 else None
            key = bytes.fromhex(card.judge) if card else b""
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
            card, key = None, b""
        if card is None or len(key) != 32:
            raise Unheard(f"there is no judge at this address (HTTP {status})")
        if self._key and key != self._key:
            raise Unheard(f"another judge answers: {name_of(key)} in place of {name_of(self._key)}")
        if not 0 <= card.work <= MAX_WORK:
            raise Unheard(f"the judge wants {card.work} bits of work of a new key, and {MAX_WORK} are the most")
        self._key, self._offset = key, card.time - self._clock()
        self._work = work_of(key, self.identity.public, card.work)
        self._met = True

    def _exchange(self, path: str, sent: Envelope, end: float, *kinds: type[S]) -> tuple[S, Envelope]:
        """The judge's signed reply. An exchange whose line broke is tried once more: the judge knows the same bytes."""
        try:
            status, data = self._request("POST", path, encode(sent), end)
        except Unheard:
            if time.monotonic() + 0.2 > end:
                raise
            status, data = self._request("POST", path, encode(sent), end)
        if status != 200:
            self._refused(status, data)
        try:
            statement, envelope = open_envelope(data, *kinds)
        except Malformed as error:
            raise Unheard(f"the judge's reply cannot be read: {error}") from None
        if statement.judge != self._key or not is_signed(envelope, self._key):
            raise Unheard("the reply is not signed by the judge")
        return statement, envelope

    def _refused(self, status: int, data: bytes) -> None:
        try:
            refusal = msgspec.msgpack.decode(data, type=Refusal)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise Unheard(f"HTTP {status}") from None
        if refusal.reason in ("clock", "work", "judge"):
            self._met = False  # what is known of it is out of date
        raise Unheard(f"{refusal.reason}: {refusal.detail[:200]}", refusal.reason, refusal.retry_after)

    def _request(self, method: str, path: str, body: bytes | None, end: float) -> tuple[int, bytes]:
        left = end - time.monotonic()
        if left <= 0:
            raise Unheard(f"no reply in {self.timeout:g} s")
        data = bytearray()
        try:
            with self._http.stream(method, f"{self.url}/{path}", content=body, timeout=left) as response:
                for chunk in response.iter_raw():
                    data += chunk
                    if len(data) > MAX_BYTES or time.monotonic() > end:
                        raise Unheard("the reply is too long, or takes too long")
                return response.status_code, bytes(data)
        except httpx2.TimeoutException:
            raise Unheard(f"no reply in {self.timeout:g} s") from None
        except httpx2.ConnectError as error:
            words = re.sub(r"^\[Errno .*?\] ", "", str(error))  # the system's own
            raise Unheard(f"cannot be reached: {words[:200]}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise Unheard(f"cannot be reached: {type(error).__name__}") from None


def checked(address: str) -> tuple[str, bytes]:
    """The URL and the key in a judge's address. Raises `UserError`."""
    url, _, hex_key = address.partition("#")
    key = b""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if hex_key:
            key = bytes.fromhex(hex_key)
        if parts.scheme in ("http", "https") and parts.hostname and len(key) in (0, 32) and bool(key) == bool(hex_key):
            _ = parts.port
            return url.rstrip("/"), key
    raise UserError(f"{address!r} is no judge: give http://HOST:PORT or http://HOST:PORT#KEY, the key in 64 hex digits")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
