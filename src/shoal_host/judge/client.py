"""A node's client of one judge: ask, answer, check the replies. It never waits long and raises `JudgeUnavailable`.

    judge = JudgeClient("https://judge.example.org#6f0c...", identity)
    asked = judge.ask(round=7, model="guppy", in_swarm=True)
    verdict = judge.answer(asked, "4")          # a Verdict, or a Receipt: the score comes later

The part after `#` is the judge's key. A
judge is a stranger too: its replies are bounded in size and time, and count only with its signature under the statement
that was sent.
"""

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2
import msgspec

from shoal.identity.keys import Identity, name_of
from shoal.rollout import Question, QuestionId
from shoal.untrusted import UNDECODABLE, encodable, printable
from shoal_host.judge.address import parse_judge_address
from shoal_host.judge.messages import (
    MAX_ANSWER,
    MAX_BYTES,
    Answer,
    Ask,
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

MAX_WORK = 20
"""Bits. Work of more than some seconds is not worth a question."""
MAX_PROMPT = 65_536
"""Characters of a question, at most. A node takes fewer tokens where its own are short (`Judges`)."""


class JudgeUnavailable(Exception):  # noqa: N818 (a judge that cannot be reached is no fault of the node's)
    """There is no question or no score. The message says why, in a few words."""

    def __init__(self, why: str, reason: str = "", retry_after: float | None = None, work: int = 0) -> None:
        super().__init__(why)
        self.reason, self.retry_after, self.work = reason, retry_after, work


@dataclass(frozen=True)
class AskedQuestion:
    """A question of a judge."""

    question: Question
    """Its id is made up: the real one comes with the score."""
    hash: bytes
    """Of the Posed."""


class JudgeClient:
    """One judge. One thread at a time may use it. Raises `UserError` for an address that is none."""

    def __init__(self, address: str, identity: Identity, timeout: float = 5.0) -> None:
        """`timeout`: seconds for a question or a score in all."""
        self.url, self.key = parse_judge_address(address)
        self.identity, self.timeout = identity, timeout
        self._work = 0
        local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")  # no proxy reaches it
        self._http = httpx2.Client(trust_env=not local, headers={"Accept-Encoding": "identity"})
        self.close = self._http.close
        self.busy = False
        """For `Judges`: whether a call is running, perhaps one that was given up."""
        self.rest_until, self.failures, self.why = 0.0, 0, ""
        """For `Judges`: until when it is left alone, and why; "" where it only keeps its pace."""

    @property
    def name(self) -> str:
        return name_of(self.key)

    def ask(self, round: int, model: str, in_swarm: bool, display_name: str = "") -> AskedQuestion:
        """The question after `round`. A judge that does not know the key asks for some work first."""
        end = time.monotonic() + self.timeout
        try:
            return self._ask(end, round, model, in_swarm, display_name)
        except JudgeUnavailable as error:
            if error.reason != "work":
                raise
            if not 0 < error.work <= MAX_WORK:
                raise JudgeUnavailable(f"it wants {error.work} bits of work, and {MAX_WORK} are the most") from None
            self._work = work_of(self.key, self.identity.public, error.work)
        return self._ask(end, round, model, in_swarm, display_name)

    def _ask(self, end: float, round: int, model: str, in_swarm: bool, display_name: str) -> AskedQuestion:
        ask = Ask(
            judge=self.key,
            key=self.identity.public,
            nonce=secrets.token_bytes(16),
            time=time.time(),
            round=round,
            model=encodable(model)[:256],
            in_swarm=in_swarm,
            work=self._work,
            display_name=display_name,
        )
        sent = seal(ask, self.identity)
        posed, envelope = self._exchange("ask", sent, end, Posed)
        if (posed.ask, posed.key, posed.round) != (sent.hash, self.identity.public, round):
            raise JudgeUnavailable("the judge replied to something else")
        if not posed.prompt or sum(len(message.content) for message in posed.prompt) > MAX_PROMPT:
            raise JudgeUnavailable(f"the judge's question is empty, or longer than {MAX_PROMPT:,} characters")
        if not is_chat([message.role for message in posed.prompt]):
            raise JudgeUnavailable("the judge's question is no chat that ends with the user's turn")
        made_up = QuestionId(posed.task, "judge", self.key.hex(), int.from_bytes(envelope.hash[:8], "big") >> 1, 0)
        return AskedQuestion(Question(made_up, posed.prompt), envelope.hash)

    def answer(self, asked: AskedQuestion, text: str) -> Verdict | Receipt:
        """The score of `text`, which is cut if too long; a receipt if scoring takes longer."""
        end = time.monotonic() + self.timeout
        text = encodable(text)[:MAX_ANSWER]
        answer = Answer(judge=self.key, key=self.identity.public, posed=asked.hash, text=text)
        sent = seal(answer, self.identity)
        while True:
            reply, _ = self._exchange("answer", sent, end, Verdict, Receipt)
            assert isinstance(reply, Verdict | Receipt)
            if (reply.answer, reply.key) != (sent.hash, self.identity.public):
                raise JudgeUnavailable("the judge replied to something else")
            if isinstance(reply, Verdict) or time.monotonic() + 1.5 > end:
                return reply
            time.sleep(0.5)

    def _exchange(self, path: str, sent: Envelope, end: float, *kinds: type[S]) -> tuple[S, Envelope]:
        """The judge's signed reply. If the connection breaks it tries once more: the judge knows the same bytes."""
        try:
            status, data = self._request(path, encode(sent), end)
        except JudgeUnavailable:
            if time.monotonic() + 0.2 > end:
                raise
            status, data = self._request(path, encode(sent), end)
        if status != 200:
            self._refused(status, data)
        try:
            statement, envelope = open_envelope(data, *kinds)
        except Malformed as error:
            raise JudgeUnavailable(f"the judge's reply cannot be read: {error}") from None
        if statement.judge != self.key or not is_signed(envelope, self.key):
            raise JudgeUnavailable("the reply is not signed by the judge")
        return statement, envelope

    def _request(self, path: str, body: bytes, end: float) -> tuple[int, bytes]:
        """The status and the body of an answer that comes before `end`, by the monotonic clock. Raises
        `JudgeUnavailable`."""
        left = end - time.monotonic()
        late = JudgeUnavailable(f"no reply in {self.timeout:g} s")
        if left <= 0:
            raise late
        data = bytearray()
        try:
            with self._http.stream("POST", f"{self.url}/{path}", content=body, timeout=left) as response:
                for chunk in response.iter_raw():
                    data += chunk
                    if len(data) > MAX_BYTES or time.monotonic() > end:
                        raise JudgeUnavailable("the reply is too long, or takes too long")
                return response.status_code, bytes(data)
        except httpx2.TimeoutException:
            raise late from None
        except httpx2.ConnectError as error:
            words = re.sub(r"^\[Errno .*?\] ", "", str(error))  # the system's own
            raise JudgeUnavailable(f"cannot be reached: {words[:200]}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise JudgeUnavailable(f"cannot be reached: {type(error).__name__}") from None

    def _refused(self, status: int, data: bytes) -> None:
        try:
            refusal = msgspec.msgpack.decode(data, type=Refusal)
        except UNDECODABLE:
            raise JudgeUnavailable(f"HTTP {status}") from None
        reason, detail = printable(refusal.reason, 40), printable(refusal.detail, 200)
        raise JudgeUnavailable(f"{reason}: {detail}", reason, refusal.retry_after, refusal.work)


def is_chat(roles: Sequence[str]) -> bool:
    """Whether these are the roles of a question: system, if any; user and assistant in turns; the user last. A chat
    template may refuse any other, writes a role as it stands, and keeps what it wrote for each list of roles."""
    turns = roles[1:] if roles[0] == "system" else roles
    return len(turns) % 2 == 1 and all(role == ("user", "assistant")[at % 2] for at, role in enumerate(turns))
