"""The view Ask: who may ask, what is answered, and that nothing computes for nobody."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from test_network import until
from tiny import CPU
from watched import HOSTILE, small_run

pytest.importorskip("starlette")
pytest.importorskip("duckdb")

import uvicorn

from shoal.cli.main import main
from shoal.errors import UserError
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load
from shoal.rollout import Message, Question
from shoal_web.serving.guard import Access
from shoal_web.watch import asking
from shoal_web.watch.server import make_app
from shoal_web.watch.sources import Sources

pytestmark = [pytest.mark.slow, pytest.mark.network]
PAGE = {"X-Shoal": "ask"}
ECHO = """
import os, sys, time
from shoal.child import die_with_parent, own_link
import msgspec
link = own_link()
die_with_parent()
open(sys.argv[1], "a").write(f"{os.getpid()} ")
while True:
    _, text = msgspec.json.decode(link.recv_bytes())
    said = text if len(text) < 9000 else ""
    link.send_bytes(msgspec.json.encode({"who": "after", "name": "echo", "text": said}))
    if text == "end":
        sys.exit()
    if text == "much":
        link.send_bytes(b"x" * 2_000_000)
    while text == "for ever":
        pass
    link.send_bytes(b"")
"""
"""Stands in for the process that answers: says the question; `for ever` computes without end."""
WINDOW = """
import sys, time
from shoal.child import start
process, link = start(sys.argv[1:])
print(process.pid, flush=True)
time.sleep(600)
"""
SMALL = """--model guppy --nodes 1 --local 1 --rounds 1 --num-generations 2 --threads 1 --eval-questions 1 --quiet
    --max-completion-length 16""".split()


@contextmanager
def serving(folder: Path, access: Access | None = None) -> Iterator[httpx2.Client]:
    """A client of the page of a run; its base address is the run's."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        sources = Sources(folders=[folder])
        app = make_app(sources, access or Access())
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{bound.getsockname()[1]}/api/runs/{sources.all()[0].id}"
        try:
            with httpx2.Client(base_url=address, headers=PAGE, timeout=120) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(10)


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Has `ECHO` answer; a file with the process ids of all that were started."""
    file = tmp_path / "processes"
    monkeypatch.setattr(asking, "COMMAND", (sys.executable, "-P", "-c", ECHO, str(file)))
    yield file
    for process in filter(runs, pids(file)):
        os.kill(process, signal.SIGKILL)


def pids(file: Path) -> list[int]:
    return [int(each) for each in file.read_text().split()] if file.exists() else []


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def lines(answer: httpx2.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_what_is_asked_is_answered_line_by_line(processes: Path, tmp_path: Path) -> None:
    with serving(small_run(tmp_path / "run")) as page:
        for text in ("8 + 7 =", *(text for text in HOSTILE if len(text) <= 2000)):
            answer = page.get("ask", params={"text": text})
            assert lines(answer) == [{"who": "after", "name": "echo", "text": text}]
            assert answer.headers["content-type"] == "application/x-ndjson"  # which no browser shows as a page
            assert answer.headers["x-content-type-options"] == "nosniff"
    assert len(pids(processes)) == 1, "models are loaded once"


def test_wrong_questions_start_nothing(processes: Path, tmp_path: Path) -> None:
    with serving(small_run(tmp_path / "run")) as page:
        for wrong in ({}, {"text": ""}, {"text": "x" * 2001}, {"text": "x", "model": "guppy"}):
            answer = page.get("ask", params=wrong)
            assert answer.status_code == 400
            assert len(answer.json()["error"]) < 200
        assert page.get("ask?text=a&text=b").status_code == 400
        assert page.post("ask", params={"text": "x"}).status_code == 405
        assert (
            page.get(str(page.base_url).rstrip("/").replace("/runs/", "/runs/0"), params={"text": "x"}).status_code
            == 404
        )
    assert not pids(processes)


def test_only_a_page_of_this_machine_may_ask(processes: Path, tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    with serving(run) as page:
        assert page.get("ask", params={"text": "x"}, headers={"X-Shoal": ""}).status_code == 403  # a link, an image
        for named in ({"Sec-Fetch-Site": "cross-site"}, {"X-Forwarded-For": "192.0.2.7"}):
            assert page.get("ask", params={"text": "x"}, headers=named).status_code == 403
        assert page.get("ask", params={"text": "x"}, headers={"Host": "evil.example"}).status_code == 421
    with serving(run, Access(token="0123456789abcdef")) as page:
        welcome = {"Authorization": "Bearer 0123456789abcdef"}
        assert page.get("ask", params={"text": "x"}, headers=welcome).status_code == 403
    assert not pids(processes)


def test_one_question_at_a_time_and_none_for_nobody(processes: Path, tmp_path: Path) -> None:
    with serving(small_run(tmp_path / "run")) as page:
        with page.stream("GET", "ask", params={"text": "for ever"}) as answer:
            told = answer.iter_lines()  # without a name for it the client would go at once
            assert json.loads(next(told))["text"] == "for ever"
            [computing] = pids(processes)
            second = page.get("ask", params={"text": "second"})
            assert second.status_code == 503
            assert "another question" in second.json()["error"]
            assert runs(computing)
        until(lambda: not runs(computing))  # the client went
        assert lines(page.get("ask", params={"text": "third"}))[0]["text"] == "third"
        assert len(pids(processes)) == 2


@pytest.mark.parametrize(("text", "patience"), [("for ever", 0.5), ("end", 60.0), ("much", 60.0)])
def test_what_takes_too_long_ends_or_sends_too_much_is_said(
    text: str, patience: float, processes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(small_run(tmp_path / "run")) as page:
        page.get("ask", params={"text": "the process has started"})
        monkeypatch.setattr(asking, "PATIENCE", patience)
        assert "too long, or too much memory" in lines(page.get("ask", params={"text": text}))[-1]["error"]
        until(lambda: not any(map(runs, pids(processes))))
        monkeypatch.setattr(asking, "PATIENCE", 60.0)
        assert lines(page.get("ask", params={"text": "8"}))[0]["text"] == "8"


def test_the_process_ends_with_the_window(tmp_path: Path) -> None:
    window = subprocess.Popen([sys.executable, "-c", WINDOW, *asking.COMMAND], stdout=subprocess.PIPE, text=True)
    assert window.stdout
    child = int(window.stdout.readline())
    assert runs(child)
    window.kill()
    window.wait()
    until(lambda: not runs(child))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two nodes, with its checkpoint."""
    folder = tmp_path_factory.mktemp("ask") / "run"
    assert main(["run", *SMALL, "--out", str(folder)]) == 0
    return folder


def asked(folder: Path, text: str) -> tuple[dict[str, str], dict[str, str]]:
    """The last text of each side, and the names of the sides."""
    told: list[dict[str, str]] = []
    asking.answers({}, folder, text, told.append)
    return {line["who"]: line["text"] for line in told}, {line["who"]: line["name"] for line in told}


def test_a_run_answers_as_shoal_ask_does(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said, named = asked(trained, "What is 3 + 4?")
    assert named["before"] == "guppy, from which it began"
    assert " after round 1" in named["after"]
    assert main(["ask", str(trained), "What is 3 + 4?", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert all(text.strip() and text.strip() in shown for text in said.values())
    with pytest.raises(UserError, match="too long"):
        asked(trained, "1 + " * 1000)


def test_a_run_is_asked_as_its_checkpoint_was(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Worked examples that are drawn again may be others: of a file that has grown, or in another version."""
    run = shutil.copytree(trained, tmp_path / "run")
    kept = (Message("user", "1 + 1"), Message("assistant", "2"))
    for checkpoint in run.glob("checkpoints/*/node-*"):
        dataclasses.replace(load(str(checkpoint), CPU.device), asking=kept).save_asking(checkpoint)
    seen: list[tuple[Message, ...]] = []
    generate = LanguagePolicy.generate

    def noting(policy: LanguagePolicy, questions: list[Question], *rest: Any) -> Any:
        seen.extend(question.asking for question in questions)
        return generate(policy, questions, *rest)

    monkeypatch.setattr(LanguagePolicy, "generate", noting)
    asked(run, "3 + 4")
    assert main(["ask", str(run), "3 + 4", "--device", "cpu"]) == 0
    assert seen == [kept] * 4, "the model before, too"


def test_a_run_without_a_checkpoint_says_so(trained: Path, tmp_path: Path) -> None:
    shutil.copy(trained / "config.toml", tmp_path / "config.toml")
    said, named = asked(tmp_path, "What is 3 + 4?")
    assert said.keys() == {"before", "after"}
    assert said["before"]
    assert said["after"] == "No checkpoint yet."
    assert named["before"].startswith("guppy")


def test_code_that_a_folder_brings_is_not_run(trained: Path, tmp_path: Path) -> None:
    """As with `shoal ask`: neither a model's own, nor what the settings name."""
    run = shutil.copytree(trained, tmp_path / "run")
    mark = f"open({str(tmp_path / 'MARK')!r}, 'w')"
    for file in run.glob("checkpoints/*/*/config.json"):
        own = {"auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}, "model_type": "own"}
        file.write_text(json.dumps(json.loads(file.read_text()) | own))
        (file.parent / "own.py").write_text(mark)
    with pytest.raises(UserError, match="needs code of its own"):
        asked(run, "3 + 4")
    (run / "own.py").write_text(mark)
    (run / "config.toml").write_text('[learner]\nloss_type = "own:loss"\n')
    with pytest.raises(UserError, match="allow-code"):
        asked(run, "3 + 4")
    assert not (tmp_path / "MARK").exists()
