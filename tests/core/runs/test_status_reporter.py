"""The state of a joined node in its folder, and how `shoal status` shows it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.main import main
from shoal.runs.swarm_status import StatusReporter, read_status
from shoal.runs.watcher import Watcher

FLOW = {"messages": 1, "bytes": 2, "overflow": 0}


class Member:
    """A place in a swarm."""

    def status(self) -> dict[str, Any]:
        return {
            "time": time.time(), "name": "calm-otter-1a2b", "id": "1a2b" * 16, "swarm": "reef", "private": False,
            "links": 1, "peers": 1, "neighbours": [], "wanted": 14, "note": "",
            "silo_since": None, "warning": "", "faults": 0, "received": FLOW, "sent": FLOW,
            "admission": {"admitted": 3, "refused": {}, "peers": []},
        }  # fmt: skip


def test_a_node_that_ended_in_order_is_not_said_to_be_in_touch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("one")
    run.mkdir()

    def said() -> str:
        assert main(["status", str(run)]) == 0
        return capsys.readouterr().out

    with closing(StatusReporter(Watcher(), Member(), run, 4)) as reporter:  # type: ignore[arg-type]
        reporter.update({"round": 1, "node": "calm-otter-1a2b"})
        assert not read_status(run)["ended"]
        assert "in touch, 1 link" in said()
        assert "shows it live: shoal watch one" in said()
    assert read_status(run)["ended"]
    text = said()
    assert "in touch" not in text
    assert "state     ended 0:00 ago" in text
    assert "shoal join --resume one" in text


class Faulty(Member):
    def status(self) -> dict[str, Any]:
        return super().status() | {"faults": 11, "first_fault": "sending a notice: OSError: the disk is full"}


def test_the_first_error_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(StatusReporter(Watcher(), Faulty(), tmp_path, 4)) as reporter:  # type: ignore[arg-type]
        reporter.update({"round": 1, "node": "calm-otter-1a2b"})
        assert main(["status", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "11 of this program itself; the first: sending a notice: OSError: the disk is full" in said


class Differs(Member):
    """It hears peers, whose messages are too large or of other tasks."""

    def status(self) -> dict[str, Any]:
        return super().status() | {"note": "swift-otter has another 'gsm8k'", "dropped": {"size": 80}}


def test_a_note_hides_neither_state_nor_what_was_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    panels: list[str] = []

    class Seen(Watcher):
        def panel(self, lines: Sequence[str]) -> None:
            panels.extend(lines)

    with closing(StatusReporter(Seen(), Differs(), tmp_path, 4)) as reporter:  # type: ignore[arg-type]
        reporter.update({"round": 1, "node": "calm-otter-1a2b"})
        assert main(["status", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "in touch, 1 link" in text
    assert "note      swift-otter has another 'gsm8k'" in text
    assert "refused   size 80" in text
    assert any("refused: size 80" in line for line in panels)


def test_makers_whose_answers_were_shortened_are_named_and_forgotten_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row: dict[str, Any] = {"round": 1, "node": "calm-otter-1a2b"}

    def learned(*shares: tuple[str, float | None]) -> list[dict[str, Any]]:
        return [{"maker": maker, "shortened": share} for maker, share in shares]

    with closing(StatusReporter(Watcher(), Member(), tmp_path, 4)) as reporter:  # type: ignore[arg-type]
        reporter.update(row, learned(("calm-otter-1a2b", None), ("sly-eel-3c4d", 0.62), ("fair-cod-5e6f", 0.0)))
        assert main(["status", str(tmp_path)]) == 0
        assert "taken out  of right answers: sly-eel-3c4d 62%" in capsys.readouterr().out
        reporter.update(row, 50 * learned(("sly-eel-3c4d", 0.0)))
        assert main(["status", str(tmp_path)]) == 0
        assert "taken out" not in capsys.readouterr().out


def test_makers_that_are_limited_are_named_with_the_reason_and_the_rounds_until_they_are_released(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row: dict[str, Any] = {"round": 1, "node": "calm-otter-1a2b"}

    def said() -> str:
        assert main(["status", str(tmp_path)]) == 0
        return " ".join(capsys.readouterr().out.split())

    with closing(StatusReporter(Watcher(), Member(), tmp_path, 4)) as reporter:  # type: ignore[arg-type]
        reporter.update(row, [], {"sly-eel-3c4d": (16, 0.27), "odd-ray-5e6f": (3, 0.06)})
        assert "limited sly-eel-3c4d for 16 rounds (27% of right answers' words), odd-ray-5e6f for 3" in said()
        reporter.update(row, [], {})
        assert "sly-eel" not in said()


def test_a_limited_node_is_told_by_whom_why_and_for_how_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Limited(Member):
        def status(self) -> dict[str, Any]:
            return super().status() | {"limited_by": {"fair-cod-5e6f": (16, 0.27)}}

    class Panel(Watcher):
        shown: Sequence[str] = ()

        def panel(self, lines: Sequence[str]) -> None:
            self.shown = lines

    watcher = Panel()
    with closing(StatusReporter(watcher, Limited(), tmp_path, 4)) as reporter:  # type: ignore[arg-type]
        reporter.update({"round": 1, "node": "calm-otter-1a2b"}, [], {})
        assert main(["status", str(tmp_path)]) == 0
    told = "fair-cod-5e6f for 16 rounds (27% of right answers' words)"
    assert f"limited by {told}" in " ".join(capsys.readouterr().out.split())
    assert any(told in line for line in watcher.shown)
