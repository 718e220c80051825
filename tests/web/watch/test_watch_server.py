"""Who may open the page, and that it changes nothing."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strangers import program
from test_network import until
from watched import HOSTILE, hostile_run, metric, small_run

pytest.importorskip("starlette")
pytest.importorskip("duckdb")

from starlette.types import ASGIApp

from shoal.cli.main import main
from shoal.errors import UserError
from shoal_web.serving import server
from shoal_web.serving.guard import LOOPBACK, Access
from shoal_web.serving.server import address_of, listening
from shoal_web.watch.server import STATIC, make_app
from shoal_web.watch.sources import Sources

SHARED = STATIC.parents[1] / "serving" / "static"
TOKEN = "a token of many letters"


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def scope_of(path: str, method: str = "GET", host: str | None = "127.0.0.1:8400", **headers: str) -> dict[str, Any]:
    """A request. Headers have `_` for `-`."""
    path, _, query = path.partition("?")
    lines = [(name.replace("_", "-").lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    lines += [(b"host", host.encode("latin-1"))] if host is not None else []
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": lines}
    scope |= {"query_string": query.encode(), "server": ("127.0.0.1", 8400), "scheme": "http", "root_path": ""}
    return scope | {
        "http_version": "1.1",
        "client": ("127.0.0.1", 1),
        "asgi": {"version": "3.0", "spec_version": "2.4"},
    }


def ask(app: ASGIApp, path: str, method: str = "GET", host: str | None = "127.0.0.1:8400", **headers: str) -> Answer:
    """What `app` answers to one request."""
    scope = scope_of(path, method, host, **headers)
    sent: list[Any] = []

    async def run() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)

    asyncio.run(run())
    start = sent[0]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return Sources(folders=[small_run(tmp_path_factory.mktemp("runs") / "one")])


@pytest.fixture(scope="module")
def app(folders: Sources) -> ASGIApp:
    return make_app(folders, Access())


@pytest.fixture(scope="module")
def locked(folders: Sources) -> ASGIApp:
    return make_app(folders, Access(token=TOKEN))


def test_the_page_and_the_api_answer(app: ASGIApp, folders: Sources) -> None:
    assert b"<title>shoal</title>" in ask(app, "/").body
    runs = ask(app, "/api/runs").json["runs"]
    assert [run["title"] for run in runs] == ["one"]
    at = f"/api/runs/{runs[0]['id']}"
    assert ask(app, f"{at}/summary").json["completions"] == 24
    assert ask(app, f"{at}/curve?metric=reward/local&by=mean").json["series"][0]["name"] == "mean"
    assert len(ask(app, f"{at}/curve?metric=eval/pass@1&by=task").json["series"]) == 1
    assert len(ask(app, f"{at}/graph").json["edges"]) == 1
    row = ask(app, f"{at}/rollouts?text=says&limit=3").json["rollouts"][0]
    assert ask(app, f"{at}/story?node=ada").json["questions"] == []
    assert ask(app, f"{at}/settings").json["settings"] == "seed = 0\n"
    assert len(ask(app, f"{at}/rollout?part={row['part']}&row={row['row']}").json["completions"]) == 2


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_can_be_changed(app: ASGIApp, method: str) -> None:
    assert ask(app, "/api/runs", method).status == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8400", "127.0.0.1.evil.example", "10.0.0.1", "", None, "["]
)
def test_other_names_get_nothing(app: ASGIApp, host: str | None) -> None:
    for path in ("/", "/api/runs", "/static/js/app.js"):
        assert ask(app, path, host=host).status == 421


@pytest.mark.parametrize("host", ["localhost:8400", "LOCALHOST", "127.0.0.1", "[::1]:8400", "[::1]"])
def test_own_names_are_answered(app: ASGIApp, host: str) -> None:
    assert ask(app, "/api/runs", host=host).status == 200


def test_addresses_in_digits_only_where_all_are_listened_to() -> None:
    everywhere = Access(LOOPBACK | {"box.local"}, any_address=True, token=TOKEN)
    assert all(map(everywhere.is_here, ("192.168.1.7:8400", "[fe80::1]:8400", "box.local:8400", "BOX.LOCAL")))
    assert not any(map(everywhere.is_here, ("evil.example", "192.168.1.7.evil.example:8400", "0x7f.1:8400")))
    assert not Access().is_here("192.168.1.7:8400")


@given(st.text(alphabet=st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=40))
def test_no_odd_host_gets_through(host: str) -> None:
    here = Access().is_here(host)
    assert not here or re.fullmatch(r"(localhost|127\.0\.0\.1|::1|\[::1\].*)(:.*)?", host.lower())


def test_other_sites_pages_may_not_ask(app: ASGIApp) -> None:
    for site in ("cross-site", "same-site"):
        assert ask(app, "/api/runs", sec_fetch_site=site, sec_fetch_mode="cors").status == 403
        assert ask(app, "/", sec_fetch_site=site, sec_fetch_mode="no-cors").status == 403
        assert ask(app, "/", sec_fetch_site=site, sec_fetch_mode="navigate").status == 200
    answer = ask(app, "/api/runs", origin="http://evil.example")
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_every_answer_has_the_policy(app: ASGIApp, locked: ASGIApp) -> None:
    for answer in (ask(app, "/"), ask(app, "/nowhere"), ask(app, "/api/runs"), ask(locked, "/"), ask(app, "/", "POST")):
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_the_token_is_asked_for_everywhere(locked: ASGIApp) -> None:
    for path in ("/api/runs", "/api/runs/x/summary", "/static/js/app.js", "/nowhere"):
        assert ask(locked, path).status == 401
    assert ask(locked, "/").headers["location"] == "/enter"
    assert b"--token-file" in ask(locked, "/enter").body
    assert ask(locked, "/static/base.css").status == 200
    for wrong in ("", "x", TOKEN + "x", TOKEN[:-1], "\xe9"):
        assert ask(locked, "/api/runs", authorization=f"Bearer {wrong}").status == 401
    assert ask(locked, "/api/runs", authorization=f"Basic {TOKEN}").status == 401
    assert ask(locked, "/api/runs?token=" + TOKEN.replace(" ", "+")).status == 401
    assert ask(locked, "/api/runs", authorization=f"Bearer {TOKEN}").status == 200


def test_a_token_in_the_address_becomes_a_cookie_and_leaves_it(locked: ASGIApp) -> None:
    answer = ask(locked, "/?token=" + TOKEN.replace(" ", "+"))
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    shown = cookie.partition(";")[0]
    assert ask(locked, "/api/runs", cookie=shown).status == 200
    assert ask(locked, "/api/runs", cookie=shown[:-1] + ("0" if shown[-1] != "0" else "1")).status == 401
    wrong = ask(locked, "/?token=wrong")
    assert (wrong.status, "set-cookie" in wrong.headers) == (303, False)
    assert TOKEN not in repr(Access(token=TOKEN))


@pytest.mark.parametrize(
    "query",
    [
        "rollouts?limit=100000",
        "rollouts?limit=0",
        "rollouts?after=../../etc",
        "rollouts?after=1.2.3",
        "rollouts?nonsense=1",
        "rollouts?node=a&node=b",
        "rollouts?least=nan",
        "rollouts?least=inf",
        "rollouts?text=" + "x" * 201,
        "rollouts?finish=stop",
        "rollout",
        "rollout?part=-1&row=0",
        "rollout?part=1&row=0&where=1",
        "curve",
        "curve?metric=x&points=1000000",
        "curve?metric=x&by=SQL",
        "curve?metric=" + "x" * 201,
        "summary?x=1",
        "graph?rounds=-1",
        "curve?metric=x&by=task&points=1",
        "story",
        "story?node=a&question=zz",
        "story?node=" + "x" * 201,
        "settings?x=1",
    ],
)
def test_parameters_are_bounded(app: ASGIApp, folders: Sources, query: str) -> None:
    answer = ask(app, f"/api/runs/{folders.all()[0].id}/{query}")
    assert answer.status == 400
    assert len(answer.body) < 500


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs/none/summary",
        "/api/runs/../summary",
        "/static/../guard.py",
        "/static/%2e%2e/guard.py",
        "/static//etc/passwd",
        "/static/js",
        "/api",
        "/config.toml",
        "/api/runs/x/__class__",
    ],
)
def test_other_paths_are_not_there(app: ASGIApp, path: str) -> None:
    assert ask(app, path).status == 404


def test_hostile_texts_leave_as_json(tmp_path: Path) -> None:
    folders = Sources(folders=[hostile_run(tmp_path / "<script>alert(1)<")])
    app = make_app(folders, Access())
    at = f"/api/runs/{folders.all()[0].id}"
    asked = [
        "summary",
        "curve?metric=reward/local",
        "curve?metric=eval/pass@1&by=task",
        "graph",
        "rollouts?limit=50",
        "settings",
    ]
    for what in asked:
        answer = ask(app, f"{at}/{what}")
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert len(answer.body) < 400_000
        assert answer.json
    rollouts = ask(app, f"{at}/rollouts?limit=50").json["rollouts"]
    assert len(rollouts) == len(HOSTILE)
    assert max(len(rollout["answers"][0]["completion"]) for rollout in rollouts) == 300
    story = ask(app, f"{at}/story?node={quote(rollouts[-1]['node'])}").json
    assert len(story["questions"]) == len(HOSTILE)
    [key, *_] = [each["key"] for each in story["questions"]]
    told = ask(app, f"{at}/story?node={quote(rollouts[-1]['node'])}&question={key}").json
    assert len(told["answers"]) == 2
    assert max(len(each["question"]) for each in story["questions"]) == 4000
    assert ask(app, f"{at}/summary").json["swarm"]["running"] is False


def test_the_page_asks_no_other_host_and_has_no_code_in_it() -> None:
    for file in [*STATIC.rglob("*.html"), *SHARED.iterdir(), *STATIC.glob("*.css"), *(STATIC / "js").glob("*.js")]:
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        text = text.replace("https://shoal-rl.github.io/shoal/glossary/", "")  # a link for the reader
        assert "//" not in re.sub(r"(^|\s)//.*", "", text) or "http" not in text, file
        for word in ("http:", "https:", "eval(", "new Function", "document.write", "insertAdjacentHTML", "outerHTML"):
            assert word not in text, (file, word)
        assert not re.search(r"\.innerHTML\s*[+=]", text), file
        if file.suffix == ".html":
            assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=", text), file
    assert (STATIC / "vendor" / "echarts-LICENSE").is_file()
    assert (STATIC / "vendor" / "echarts-NOTICE").is_file()


def test_an_open_page_has_sources_look_for_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_web.watch.sources.LOOK", 0.0)
    monkeypatch.setattr("shoal_web.watch.sources.SEARCH", 0.01)
    with closing(Sources(folders=[tmp_path])) as sources:
        page = make_app(sources, Access())
        run = small_run(tmp_path / "one")
        until(lambda: ask(page, "/api/runs").json["runs"])
        [line] = ask(page, "/api/runs").json["runs"]
        before = ask(page, f"/api/runs/{line['id']}/summary").json["version"]
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(metric(8, "ada")) + "\n")
        until(lambda: ask(page, "/api/runs").json["runs"][0]["version"] > before)


def test_style_sheets_are_whole() -> None:
    for file in [*STATIC.glob("*.css"), *SHARED.glob("*.css"), *(STATIC.parents[1] / "human" / "static").glob("*.css")]:
        text = re.sub(r"/\*.*?\*/|\"[^\"]*\"", "", file.read_text(encoding="utf-8"), flags=re.S)
        depth = 0
        for sign in re.findall(r"[{}]", text):
            depth += 1 if sign == "{" else -1
            assert 0 <= depth <= 3, file
        assert depth == 0, file
        for body in re.findall(r"\{([^{}]*)\}", text):  # each declaration is a name and a value
            for line in filter(str.strip, body.split(";")):
                assert re.fullmatch(r"\s*[\w-]+\s*:[^:]+", line), (file, line)


def test_where_it_listens(tmp_path: Path) -> None:
    assert address_of("127.0.0.1:8400", "") == ("127.0.0.1", 8400)
    assert address_of("[::1]:1", "") == ("::1", 1)
    for wrong in ("", ":1", "x", "x:y", "x:70000"):
        with pytest.raises(UserError, match="HOST:PORT"):
            address_of(wrong, "127.0.0.1:8401")
    assert all(map(server.is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(server.is_loopback, ("0.0.0.0", "::", "192.168.1.1", "localhost.evil.example")))
    file = tmp_path / "token"
    for text in ("short", "x" * 20 + "\ny", "é" * 20, ""):
        file.write_text(text)
        with pytest.raises(UserError, match="token"):
            server.read_token(file)
    file.write_text("0123456789abcdef\n")
    assert server.read_token(file) == "0123456789abcdef"
    with listening("127.0.0.1", 0, other=False) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match="--listen"):
            listening("127.0.0.1", port, other=False)
        with listening("127.0.0.1", port, other=True) as other:
            assert other.getsockname()[1] != port


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly_while_a_page_is_open(tmp_path: Path, number: signal.Signals) -> None:
    words = ("watch", "--serve", "--listen", "127.0.0.1:0", small_run(tmp_path / "run"))
    with program(*words, says="Ctrl-C") as running:
        [port] = re.findall(r"http://127.0.0.1:(\d+)/", running.said)
        with socket.create_connection(("127.0.0.1", int(port)), 30) as page:
            page.sendall(b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            while b'"title":"run"' not in page.recv(65536):
                continue
            assert running.stop(number) == 0
    assert running.said.splitlines()[1:] == []


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["absent"], "absent is not a folder"),
        (["--judge", "absent"], "no records in absent"),
        (["--judge", "ftp://x"], "no records in"),
        (["--swarm", "a reef"], "letters"),
        (["--swarm", "reef", "nowhere"], "no endpoint"),
        (["--secret-file", "x"], "--swarm"),
        (["--listen", "nowhere", "."], "HOST:PORT"),
        (["--listen", "192.0.2.1:1", "."], "cannot listen"),
        (["--token-file", "absent", "."], "cannot read the token"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    words: list[str], wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["watch", "--no-open", *words]) == 2
    told = capsys.readouterr().err
    assert wrong in told
    assert told.count("\n") == 1


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
@pytest.mark.parametrize(
    ("change", "waited", "found"),
    [
        ({}, 0, [False, False]),
        ({"version": 2}, 0, [False, True]),
        ({"live": False}, 0, [True, False]),
        ({"id": "b"}, 0, [True, True]),
        ({}, 31_000, [False, True]),
    ],
)
def test_the_page_asks_again_for_news_and_as_time_passes(
    tmp_path: Path, change: dict[str, Any], waited: int, found: list[bool]
) -> None:
    shutil.copy(STATIC / "js" / "news.js", tmp_path / "news.mjs")
    run = {"id": "a", "version": 1, "live": True}
    known = {"runs": [run], "versions": {"a": 1}}
    given = ", ".join(map(json.dumps, (known, [run | change], ["a"], waited)))
    code = f'import {{ newsOf }} from "./news.mjs"; const {{ listed, moved }} = newsOf({given});'
    words = ["node", "--input-type=module", "--eval", f"{code} console.log(JSON.stringify([listed, moved]))"]
    assert json.loads(subprocess.run(words, cwd=tmp_path, capture_output=True, check=True).stdout) == found
