"""Any OpenAI-compatible server as a policy that answers and shares, but never learns.

    policy = EndpointPolicy("http://localhost:8080/v1#qwen3", Sampling(temperature=0.8))

llama.cpp, Ollama, MLX, vLLM, `transformers serve` and cloud services have this interface. The model's name follows `#`;
it may be left out if the server has one model. The key is the environment variable OPENAI_API_KEY. A server whose
address comes from a file gets the key only if OPENAI_BASE_URL is the same address.

A server that fails stops nobody: `generate` then gives fewer completions, or none, and `trouble` says why.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from shoal.errors import UserError
from shoal.policy.decoders.base import Sampling
from shoal.protocols import OnProgress
from shoal.rollout import Completion, FinishReason, Question, seed_of
from shoal.sandbox.replay import refuse_conversations
from shoal.tasks.pictures import data_address
from shoal_extras.chat import ATTEMPTS, ChatClient, ChatError, Choice

T = TypeVar("T")

PAUSE = 0.2
"""Seconds between two looks at what a server has answered."""
TRIAL = ({"role": "user", "content": "Say yes."},)
"""The question that shows whether the server answers."""
TRIAL_TOKENS = 16
TRIAL_TIMEOUT = 15.0
"""Seconds that a server has for its first answer after it gave none."""


class EndpointPolicy:
    """Answers questions by asking a server. Its tokens and weights stay there: completions are text alone."""

    def __init__(
        self, url: str, sampling: Sampling, timeout: float = 120.0, requests: int = 4, sends_key: bool = True
    ) -> None:
        """Raises `UserError` unless the server answers. `timeout`: seconds for each request. `requests`: how many are
        open at a time. `sends_key`: whether the server gets the key; if not, only the one in OPENAI_BASE_URL does."""
        self.name = url
        self.sampling = sampling
        self.trouble = ""
        """Why the last `generate` gave fewer completions than it was asked for; "" if it gave all."""
        self._base, _, self._model = _checked(url).partition("#")
        self._timeout, self._requests, self._sends_key = timeout, requests, sends_key
        self.on_progress: OnProgress | None = None
        self._answered = 0  # questions of the current call
        self._down = False  # whether the last call gave nothing at all
        self._several = True  # whether the server gives several answers to one request
        self._longest = "max_tokens"  # the name that this server has for it
        finish(self._reach())

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        """`num_generations` completions for each question, or as many as the server gives. The server decides whether
        the same `seed` gives the same ones."""
        refuse_conversations(questions, "an endpoint")
        self._answered = 0
        work = self._generate(questions, num_generations, seed)
        return finish(cancellable(work, self.on_progress, lambda: self._answered))

    def save(self, folder: Path) -> None:
        """There is nothing to keep."""

    async def _generate(self, questions: Sequence[Question], n: int, seed: int) -> list[tuple[Completion, ...]]:
        self.trouble = ""
        if self._down and not await self._is_back():
            return [() for _ in questions]
        async with self._client(self._timeout, self._requests) as client:
            groups = await asyncio.gather(
                *(self._group(client, question, n, seed_of(seed, number)) for number, question in enumerate(questions))
            )
        self._down = bool(questions) and not any(groups)
        return [tuple(map(_completion, group)) for group in groups]

    async def _group(self, client: ChatClient, question: Question, n: int, seed: int) -> list[Choice]:
        """At most `n` answers to `question`. Some servers give one whatever is asked; then each is a request."""
        found: list[Choice] = []
        if self._several:
            found = await self._tried(self._ask(client, _messages(question), n, seed))
            self._several = not found or len(found) >= n
        if found or not self._several:
            rest = (self._ask(client, _messages(question), 1, seed_of(seed, at)) for at in range(len(found), n))
            for more in await asyncio.gather(*map(self._tried, rest)):
                found += more
        self._answered += 1
        return found

    async def _tried(self, asking: Coroutine[Any, Any, list[Choice]]) -> list[Choice]:
        try:
            return await asking
        except ChatError as fault:
            self.trouble = self.trouble or f"{self._base}: {fault.reason}"
            return []

    async def _ask(
        self,
        client: ChatClient,
        prompt: Sequence[Mapping[str, Any]],
        n: int,
        seed: int,
        longest: int | None = None,
        attempts: int = ATTEMPTS,
    ) -> list[Choice]:
        """At most `n` answers. Raises `ChatError`. If the server refuses a request, it gets another form of it."""
        longest = longest or self.sampling.max_completion_length
        name = self._longest
        body = {
            "model": self._model,
            "messages": prompt,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            name: longest,
            "n": n,
            "seed": seed % 2**31,
        }
        limit = 2**20 + 64 * n * longest  # far more than so many tokens take
        try:
            return (await client.complete(body, limit, attempts))[:n]
        except ChatError as fault:
            renamed = name == "max_tokens" and "max_completion_tokens" in fault.reason
            if fault.status not in (400, 422) or (n == 1 and not renamed):
                raise
            self._longest = "max_completion_tokens" if renamed else name
            return await self._ask(client, prompt, n if renamed else 1, seed, longest, attempts)

    async def _reach(self) -> None:
        """Finds out the model's name where none is given, and whether it answers."""
        async with self._client(self._timeout, 1) as client:
            try:
                self._model = self._model or _the_one(await client.models(), self._base)
                await self._ask(client, TRIAL, 1, 0, TRIAL_TOKENS, attempts=2)
                return
            except ChatError as error:
                fault = error
        advice = ""
        if fault.status in (401, 403):
            advice = "; set OPENAI_API_KEY" + ("" if self._sends_key else f", and OPENAI_BASE_URL={self._base}")
        elif fault.status in (400, 404, 422):
            async with self._client(TRIAL_TIMEOUT, 1) as client:
                with suppress(ChatError):
                    advice = f"; its models are {_some(await client.models())}"
        model = f" with model '{self._model}'" if self._model else ""
        raise UserError(f"the endpoint {self._base} does not answer{model}: {fault.reason}{advice}")

    def _client(self, timeout: float, requests: int) -> ChatClient:
        return ChatClient(self._base, timeout, requests, self._sends_key)

    async def _is_back(self) -> bool:
        async with self._client(min(TRIAL_TIMEOUT, self._timeout), 1) as client:
            return bool(await self._tried(self._ask(client, TRIAL, 1, 0, TRIAL_TOKENS, attempts=1)))


def _messages(question: Question) -> list[dict[str, Any]]:
    """The question as servers take it; its pictures stand before the last text of the user."""
    messages: list[dict[str, Any]] = [{"role": m.role, "content": m.content} for m in question.chat]
    shown = [{"type": "image_url", "image_url": {"url": data_address(picture)}} for picture in question.pictures]
    if shown:
        last = [message for message in messages if message["role"] == "user"][-1]
        last["content"] = [*shown, {"type": "text", "text": last["content"]}]
    return messages


def _completion(choice: Choice) -> Completion:
    """Only what ended by itself is given an end: "length", "content_filter" and all else count as cut."""
    reason = FinishReason.stop if choice.finish_reason == "stop" else FinishReason.length
    return Completion.of(choice.message.content or "", reason)


def _checked(url: str) -> str:
    """`url` without a slash at its end. Raises `UserError` for what is none, and for one that would carry a secret."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UserError(f"'{url}' is no address of an endpoint: {error}") from None
    if parts.query or parts.username or parts.password:  # it would stand in config.toml
        raise UserError("the address of an endpoint holds no user, password or query: the key is OPENAI_API_KEY")
    if not host or not url.isascii() or not url.isprintable() or " " in url:
        raise UserError(f"'{url}' is no address of an endpoint: give http://HOST:PORT/v1 or http://HOST:PORT/v1#MODEL")
    base, mark, model = url.partition("#")
    return base.rstrip("/") + mark + model


def _the_one(models: Sequence[str], base: str) -> str:
    models = [name for name in models if name.isprintable()]
    if len(models) != 1:
        named = f"has several models: give {base}#MODEL, one of {_some(models)}"
        raise UserError(f"the endpoint {base} {named if models else f'names no models: give {base}#MODEL'}")
    return models[0]


def _some(models: Sequence[str]) -> str:
    names = [name[:80] for name in models if name.isprintable()]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, also where this thread runs an event loop already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, work).result()


async def cancellable(work: Coroutine[Any, Any, T], on_progress: OnProgress | None, answered: Callable[[], int]) -> T:
    """The result of `work`. What `on_progress` raises cancels it."""
    task = asyncio.ensure_future(work)
    try:
        while on_progress is not None and not (await asyncio.wait([task], timeout=PAUSE))[0]:
            on_progress(answered())
        return await task
    finally:
        task.cancel()
