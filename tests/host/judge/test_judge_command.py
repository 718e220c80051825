"""`shoal judge` on the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal.cli.flags import Parser
from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal_host.judge.command import HELP, add_arguments, command
from shoal_host.judge.records import Records, answer_row, ask_rows, outcome_row
from shoal_host.judge.rules import Session, Stage


def run(*words: str) -> int:
    parser = Parser(prog="shoal judge", description=HELP)
    add_arguments(parser)
    return command(parser.parse(words))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("judge")
    records = Records(made)
    for number in range(4):
        key = bytes([number % 2]) * 32
        session = Session(number + 1, key, number // 2, number // 2, "[red]m\x1b[0mא", True, b"h" * 32, 1.0, 2.0, 2.0)
        session.task, session.question, session.posed = "gcd", QuestionId("gcd", "1", "c", 1, 0), b"p" * 32
        session.stage, session.score, session.answer = Stage.scored, float(number % 2), b"a" * 32
        rows = [*ask_rows(session, b"", b""), answer_row(session, 2.0, b"", b""), outcome_row(session)]
        records.append(*rows).result(10)
    records.close()
    return made


def test_the_leaderboard(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--report", str(folder)) == 0
    out = capsys.readouterr().out
    assert "pass@1" in out
    assert "[red]m?[0m?" in out  # as it is, without what a terminal would obey or would turn around
    assert out.index(" 1.000 ") < out.index(" 0.000 ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--data"),
        (["--data", "x", "--listen", "here"], "HOST:PORT"),
        (["--data", "x", "--listen", "here:99999"], "HOST:PORT"),
        (["--data", "x", "--limit", "0"], "--limit"),
        (["--data", "x", "--newcomers", "nan"], "newcomers"),
        (["--data", "x", "--work", "99"], "--work"),
        (["--data", "x", "--limt", "2"], "did you mean '--limit'"),
        (["--report", "absent"], "no records"),
    ],
)
def test_mistakes(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said):
        run(*words)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_suite(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pond"):
        run("--data", str(tmp_path / "judge"), "--suite", "pnod")


def test_a_node_and_the_command_line_need_little() -> None:
    for modules, absent in (
        ("shoal_host.judge.judges", {"torch", "starlette", "uvicorn", "reasoning_gym"}),
        ("shoal_host.judge.command", {"torch", "reasoning_gym"}),
    ):
        code = f"import sys, {modules}; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert not absent & set(done.stdout.split())
