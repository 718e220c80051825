"""`shoal judge` on the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal.cli.flags import Parser
from shoal.errors import UserError
from shoal_host.judge.command import HELP, add_arguments, command


def run(*words: str) -> int:
    parser = Parser(prog="shoal judge", description=HELP)
    add_arguments(parser)
    return command(parser.parse(words))


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
