"""Endpoints as policies: what they are asked, and that a bad server costs rollouts and nothing else."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from typing import Any

import pytest
from servers import Reply, Server, chat, free_url, good, serving

from shoal.errors import Stopped, UserError
from shoal.policy.decoders.base import Sampling
from shoal.rollout import FinishReason, Message, Question, QuestionId
from shoal_extras import chat as chat_module
from shoal_extras.endpoint import EndpointPolicy, cancellable


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_module, "BACKOFF", 0.0)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def ask(n: int) -> list[Question]:
    identity = QuestionId("t", "1", "c", 0, 0)
    return [Question(identity, (Message("system", "short"), Message("user", f"q{number}"))) for number in range(n)]


def make(server: Server, name: str = "", timeout: float = 10.0, requests: int = 4, **sampling: Any) -> EndpointPolicy:
    return EndpointPolicy(server.url + name, Sampling(**sampling), timeout, requests)


def texts(policy: EndpointPolicy, questions: int = 2, n: int = 3, seed: int = 1) -> list[list[str]]:
    return [[c.text for c in group] for group in policy.generate(ask(questions), n, seed)]


def refused(url: str) -> str:
    with pytest.raises(UserError) as caught:
        EndpointPolicy(url, Sampling(), timeout=5)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_a_server_is_asked() -> None:
    with serving() as server:
        policy = make(server, temperature=0.7, top_p=0.9, max_completion_length=32)
        groups = policy.generate(ask(2), 3, seed=2**62)
        assert [[c.text.split("|")[0] for c in group] for group in groups] == [["q0"] * 3, ["q1"] * 3]
        assert all(c.token_ids is None and c.finish_reason == FinishReason.stop for group in groups for c in group)
        first, second = server.questions
        assert all(0 <= body["seed"] < 2**31 for body in server.questions)
        assert first["seed"] != second["seed"]
        assert {**first, "seed": 0, "messages": []} == {
            "model": "m",
            "messages": [],
            "temperature": 0.7,
            "top_p": 0.9,
            "max_tokens": 32,
            "n": 3,
            "seed": 0,
        }
        assert first["messages"][0] == {"role": "system", "content": "short"}
        assert policy.generate(ask(2), 3, seed=2**62) == groups
        assert policy.generate(ask(2), 3, seed=5) != groups
        assert policy.generate([], 3, seed=5) == []
        assert policy.trouble == ""


@pytest.mark.parametrize("given", ["stop", "length", "content_filter", "tool_calls", "", None])
def test_only_what_ended_by_itself_has_an_end(given: str | None) -> None:
    with serving(lambda server, body: (200, chat("yes", finish=given))) as server:
        ((completion,),) = make(server).generate(ask(1), 1, 0)
        assert completion.finish_reason == ("stop" if given == "stop" else "length")


def test_an_answer_without_text_is_empty() -> None:
    reply = {"choices": [{"message": {"content": None, "reasoning_content": "hm"}, "finish_reason": "length"}]}
    with serving(lambda server, body: (200, reply)) as server:
        assert texts(make(server), 1, 1) == [[""]]


def test_a_server_that_ignores_n_is_asked_again_with_other_seeds() -> None:
    with serving(lambda server, body: good(server, body | {"n": 1})) as server:
        policy = make(server)
        groups = texts(policy, 2, 4)
        assert [len(set(group)) for group in groups] == [4, 4]
        assert [body["n"] for body in server.questions].count(4) == 2
        before = len(server.questions)
        assert [len(set(group)) for group in texts(policy, 2, 4, seed=9)] == [4, 4]
        assert [body["n"] for body in server.questions[before:]] == [1] * 8  # it has been learned


def test_a_server_that_refuses_n_is_asked_one_by_one() -> None:
    def answer(server: Server, body: dict[str, Any]) -> Reply:
        return good(server, body) if body["n"] == 1 else (400, {"error": {"message": "n must be 1"}})

    with serving(answer) as server:
        assert [len(set(group)) for group in texts(make(server), 2, 4)] == [4, 4]


def test_more_answers_than_asked_for_are_left_away() -> None:
    with serving(lambda server, body: (200, chat(*"abcdef"))) as server:
        assert texts(make(server), 1, 2) == [["a", "b"]]


def test_a_server_with_another_name_for_the_longest_answer() -> None:
    def answer(server: Server, body: dict[str, Any]) -> Reply:
        if "max_tokens" in body:
            return 400, {"error": {"message": "Unsupported 'max_tokens'. Use 'max_completion_tokens' instead."}}
        return good(server, body)

    with serving(answer) as server:
        assert [len(group) for group in texts(make(server, max_completion_length=7))] == [3, 3]
        assert [body["max_completion_tokens"] for body in server.questions] == [7, 7]


def test_no_more_requests_at_a_time_than_allowed() -> None:
    gate = threading.Barrier(3, timeout=20)

    def answer(server: Server, body: dict[str, Any]) -> Reply:
        if body["messages"][-1]["content"] != "Say yes.":
            gate.wait()  # passes once three wait
        return good(server, body)

    with serving(answer) as server:
        assert len(texts(make(server, requests=3), 9, 1)) == 9
        assert server.most_together == 3


@pytest.mark.parametrize("status", [429, 500, 503])
def test_it_is_asked_again_when_the_server_is_busy(status: int) -> None:
    def answer(server: Server, body: dict[str, Any]) -> Reply:
        return good(server, body) if len(server.asked) % 2 == 0 else (status, b"busy")

    with serving(answer, headers={"Retry-After": "0"}) as server:
        policy = make(server, requests=1)
        assert [len(group) for group in texts(policy)] == [3, 3]
        assert policy.trouble == ""
        assert len(server.asked) == 2 * 3  # the trial, too


def test_the_pause_that_a_server_asks_for_is_bounded() -> None:
    headers = ["0.5", "3600", "-1", "inf", "nan", "Wed, 21 Oct 2026 07:28:00 GMT", ""]
    pauses = [chat_module._retry_after(chat_module.httpx2.Headers({"Retry-After": value})) for value in headers]
    assert pauses == [0.5, 30.0, 0.0, 30.0, 0.0, 0.0, 0.0]


def test_it_is_asked_again_when_the_connection_is_lost() -> None:
    def answer(server: Server, body: dict[str, Any]) -> Reply | None:
        if len(server.asked) % 3 == 0:
            return good(server, body)
        if len(server.asked) % 3 == 1:
            server.handler.connection.shutdown(socket.SHUT_RDWR)
        return None

    with serving() as server:
        policy = make(server, requests=1)
        server.answer = answer
        server.asked.clear()
        assert [len(group) for group in texts(policy)] == [3, 3]


def bad(server: Server, reply: Reply) -> EndpointPolicy:
    """A policy whose server answered well at first."""
    policy = make(server)
    server.answer = lambda server, body: reply
    server.asked.clear()
    return policy


def test_a_server_that_fails_for_ever_costs_few_requests_and_comes_back() -> None:
    with serving() as server:
        policy = bad(server, (500, {"error": {"message": "out of order"}}))
        assert texts(policy, 20, 4) == [[]] * 20
        assert policy.trouble == f"{server.url}: HTTP 500: out of order"
        assert len(server.asked) <= 4 * 4  # four at a time, four times each, and no more
        server.asked.clear()
        assert texts(policy, 20, 4) == [[]] * 20
        assert len(server.asked) == 1  # whether it is back
        server.answer = good
        assert [len(group) for group in texts(policy, 20, 4)] == [4] * 20
        assert policy.trouble == ""


DEEP = b'{"choices":' + b"[" * 100_000
GARBAGE = {
    "no JSON": b"<html>",
    "nothing": b"",
    "cut short": json.dumps(chat("a")).encode()[:-3],
    "no choices": {"object": "chat.completion"},
    "empty choices": {"choices": []},
    "wrong types": {"choices": [{"message": {"content": 5}}]},
    "no message": {"choices": [{"text": "a"}]},
    "a list": [1, 2],
    "deep": DEEP,
    "not UTF-8": b'{"choices":[{"message":{"content":"\xff"}}]}',
    "half a surrogate": b'{"choices":[{"message":{"content":"\\ud800"}}]}',
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("status", [200, 400, 500])
def test_garbage_gives_no_completions(data: Any, status: int) -> None:
    with serving() as server:
        policy = bad(server, (status, data))
        assert texts(policy) == [[], []]
        assert policy.trouble.startswith(f"{server.url}: ")
        assert policy.trouble.isprintable()
        assert len(policy.trouble) < 400


def test_a_huge_answer_is_not_taken() -> None:
    with serving() as server:
        policy = bad(server, (200, chat("x" * 2**22)))
        assert texts(policy) == [[], []]
        assert "more than" in policy.trouble
        server.answer = lambda server, body: (500, b"x" * 2**22)
        assert texts(policy) == [[], []]
        assert len(policy.trouble) < 400


def test_what_comes_compressed_is_not_unpacked() -> None:
    import gzip

    with serving() as server:
        policy = bad(server, (200, gzip.compress(json.dumps(chat("a")).encode())))
        server.headers["Content-Encoding"] = "gzip"
        assert texts(policy) == [[], []]


def test_one_bad_answer_does_not_cost_the_others() -> None:
    def answer(server: Server, body: dict[str, Any]) -> Reply:
        return (400, {"error": "too long"}) if body["messages"][-1]["content"] == "q1" else good(server, body)

    with serving(answer) as server:
        policy = make(server)
        assert [len(group) for group in texts(policy, 3)] == [3, 0, 3]
        assert policy.trouble == f"{server.url}: HTTP 400: too long"


def test_a_silent_server_is_given_up() -> None:
    def answer(server: Server, body: dict[str, Any]) -> None:
        server.over.wait(60)

    with serving() as server:
        policy = make(server, timeout=0.3)
        server.answer = answer
        server.asked.clear()
        assert texts(policy, 20) == [[]] * 20
        assert len(server.asked) == 4  # as many as at a time, once each
        assert policy.trouble == f"{server.url}: no answer within 0.3 seconds"


def test_a_server_that_drips_is_given_up() -> None:
    def answer(server: Server, body: dict[str, Any]) -> None:
        handler = server.handler
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not server.over.wait(0.05):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    with serving() as server:
        policy = make(server, timeout=0.5)
        server.answer = answer
        assert texts(policy, 1, 1) == [[]]
        assert "within" in policy.trouble


def test_a_redirection_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with serving() as other, serving() as server:
        policy = bad(server, (307, b""))
        server.headers["Location"] = other.url + "/chat/completions"
        assert texts(policy) == [[], []]
        assert other.asked == []


def test_the_key_goes_into_the_header_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        make(server)
        monkeypatch.setenv("OPENAI_API_KEY", " sk-secret\n")
        policy = make(server)
        assert server.keys == [None, "Bearer sk-secret"]
        server.answer = lambda server, body: (500, {"error": {"message": "bad key sk-secret"}})
        texts(policy)
        assert policy.trouble == f"{server.url}: HTTP 500: bad key ***"
        assert "sk-secret" not in repr(vars(policy))


@pytest.mark.parametrize("key", ["sk-sécret", "sk\nsecret", "sk\x00secret"])
def test_a_key_that_is_none_is_not_repeated(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "\x00" in key:
        monkeypatch.setattr(chat_module.os, "environ", {"OPENAI_API_KEY": key})
    else:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    assert refused("http://127.0.0.1:9/v1") == "OPENAI_API_KEY holds characters that no key has"


def test_the_model_is_named_or_the_only_one() -> None:
    with serving() as server:
        make(server, "#other")
        make(server, "/")
        assert [body["model"] for body in server.asked] == ["other", "m"]
        server.models = 200, {"data": [{"id": "a"}, {"id": "b/c"}]}
        assert refused(server.url).endswith(f"has several models: give {server.url}#MODEL, one of a, b/c")
        make(server, "#b/c")
        server.models = 200, {"data": []}
        assert "names no models" in refused(server.url)
        for models in ((404, b""), (200, b"?"), (200, {"data": [{"name": "a"}]})):
            server.models = models
            assert "does not answer" in refused(server.url)
            make(server, "#named")


def test_an_endpoint_that_is_not_there_is_an_error_of_one_line() -> None:
    url = free_url()
    assert refused(url).startswith(f"the endpoint {url} does not answer: no connection")
    assert refused(f"{url}#m").startswith(f"the endpoint {url} does not answer with model 'm': no connection")


def test_an_unknown_model_is_an_error_that_names_the_known() -> None:
    with serving(lambda server, body: (404, {"error": {"message": "no such model"}})) as server:
        assert refused(server.url + "#x") == (
            f"the endpoint {server.url} does not answer with model 'x': HTTP 404: no such model; its models are m"
        )


def test_a_missing_key_is_an_error_that_says_so() -> None:
    with serving(lambda server, body: (401, {"error": {"message": "who\nare\x1b[31m you"}})) as server:
        assert refused(server.url).endswith("HTTP 401: who are [31m you; set OPENAI_API_KEY")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://", "no address"),
        ("http://host:99999999/v1", "no address"),
        ("http://ho st/v1", "no address"),
        ("http://[::1/v1", "no address"),
        ("http://höst/v1", "no address"),
        ("https://me:sk-secret@host/v1", "no user, password or query"),
        ("https://host/v1?api_key=sk-secret", "no user, password or query"),
    ],
)
def test_what_is_no_address(url: str, said: str) -> None:
    message = refused(url)
    assert said in message
    assert "sk-secret" not in message


def test_a_notebook_may_ask_a_server() -> None:
    """Its cells run within an event loop."""

    async def cell(server: Server) -> list[list[str]]:
        return texts(make(server))

    with serving() as server:
        assert [len(group) for group in asyncio.run(cell(server))] == [3, 3]


def test_a_server_is_looked_at_while_it_answers() -> None:
    ended = []

    async def slow() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(True)

    def on_progress(answered: int) -> None:
        assert answered == 3
        raise Stopped

    with pytest.raises(Stopped):
        asyncio.run(cancellable(slow(), on_progress, lambda: 3))
    assert ended == [True]

    async def quick() -> int:
        return 5

    assert asyncio.run(cancellable(quick(), on_progress, lambda: 3)) == 5
    assert asyncio.run(cancellable(quick(), None, lambda: 3)) == 5
