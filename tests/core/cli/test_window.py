"""The window beside a run: it is there, it is opened, and it ends with the run."""

from __future__ import annotations

import queue
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from shoal.cli import window as window_module
from shoal.cli.window import Window
from shoal.runs.folder import RunFolder

PATIENCE = 120.0


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunFolder.create(tmp_path / "a run", "version = 2\n") as folder:
        return folder.path


@pytest.mark.slow
def test_it_shows_the_run_in_the_browser_and_ends_with_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {str(tmp_path / "opened")!r}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    said: queue.Queue[str] = queue.Queue()
    with Window(run, said.put) as window:
        line = said.get(timeout=PATIENCE)
        assert line == f"window         {window.address}  (Ctrl-C ends it, too)"
        with urllib.request.urlopen(f"{window.address}api/runs", timeout=PATIENCE) as reply:
            assert b'"a run"' in reply.read()
        process = window._process
    assert process.returncode is not None
    assert (tmp_path / "opened").read_text().strip() == window.address


@pytest.mark.slow
def test_it_says_why_there_is_none(tmp_path: Path) -> None:
    said: queue.Queue[str] = queue.Queue()
    with Window(tmp_path / "gone", said.put) as window:
        assert f"{tmp_path / 'gone'} is not a folder" in said.get(timeout=PATIENCE)
        assert window.address == ""


@pytest.mark.slow
def test_it_ends_when_the_run_is_killed(run: Path) -> None:
    program = (
        "import os, sys, threading\nfrom pathlib import Path\nfrom shoal.cli.window import Window\n"
        "there = threading.Event()\n"
        "window = Window(Path(sys.argv[1]), lambda text: there.set())\n"
        "there.wait()\nprint(window._process.pid, flush=True)\nos._exit(9)\n"
    )
    command = [sys.executable, "-c", program, str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
    assert parent.returncode == 9
    state = Path(f"/proc/{pid}")
    waited = window_module.threading.Event()
    assert any(not state.exists() or waited.wait(0.1) for _ in range(int(10 * PATIENCE)))
    assert not state.exists() or "Z" in (state / "stat").read_text().rpartition(")")[2]
