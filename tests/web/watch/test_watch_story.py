"""What the window says a node learned, and the settings of runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from watched import ASKED, metric, told, told_run, write_run

pytest.importorskip("duckdb")

from shoal.runs.folder import RunFolder
from shoal.runs.tables import TRANSCRIPTS
from shoal_web.watch.folder import FolderSource, read_text, told_by
from shoal_web.watch.metrics import Metrics
from shoal_web.watch.nodes import seconds_left
from shoal_web.watch.source import Data, Parameters, StoryQuery


def story(run: Path, node: str = "ada", question: str | None = None) -> Data:
    with closing(FolderSource(run, "run")) as source:
        return dict(source.story(StoryQuery(node=node, question=question)))


def key(found: Data, text: str) -> str:
    [key] = [each["key"] for each in found["questions"] if each["question"] == text]
    return str(key)


def test_all_questions_and_one_of_them_whole(tmp_path: Path) -> None:
    run = told_run(tmp_path / "run")
    found = story(run)
    assert (found["rounds"], found["answers"]) == ([0, 10, 20, 30], [])
    ends = {text: (marks[0], marks[-1]) for text, marks in ASKED.items()}
    assert {each["question"]: (each["before"], each["now"]) for each in found["questions"]} == ends
    for text, first, said in (("gcd of 12, 18?", 20, ["7", "7", "6", "6"]), ("gcd of 12, 30?", None, None)):
        chosen = key(found, text)
        whole = story(run, question=chosen)
        [one] = [each for each in whole["questions"] if each["key"] == chosen]
        assert one["first_right"] == first
        assert [each["round"] for each in whole["answers"]] == [0, 10, 20, 30]
        assert said in (None, [each["completion"] for each in whole["answers"]])
    assert story(run, question="00000000")["answers"] == []
    assert story(run, node="nobody")["questions"] == []


def test_what_a_node_trained_on(tmp_path: Path) -> None:
    with closing(FolderSource(told_run(tmp_path / "run"), "run")) as source:
        edges = [each for each in source.graph(Parameters())["edges"] if each["node"] == "ada"]
    assert [(each["maker"], each["peer"], each["rollouts"], each["live"]) for each in edges] == [
        ("eve", True, 3, 2),
        ("bob", True, 2, 2),
        ("ada", False, 1, 1),
    ]


def test_a_conversation_is_told_turn_by_turn(tmp_path: Path) -> None:
    row = {"node": "ada", "task": "guess", "prompt": "guess 1 to 16", "completion": "8\n4", "finish_reason": "stop"}
    row |= {"reward": 0.0, "conversation": '[["8", "lower"], ["4", "right"]]'}
    with RunFolder.create(tmp_path / "run", "") as folder:
        folder.save(TRANSCRIPTS, 0, [row])
        folder.save(TRANSCRIPTS, 10, [row | {"conversation": "[1]"}])
        folder.flush()
    whole = story(folder.path, question=key(story(folder.path), "guess 1 to 16"))
    assert [each["conversation"] for each in whole["answers"]] == [[("8", "lower"), ("4", "right")], None]


def test_many_evaluations_are_thinned_and_the_first_right_one_stays(tmp_path: Path) -> None:
    answers = {at: [told("ada", "?", str(at), float(at >= 101))] for at in range(0, 500)}
    run = write_run(tmp_path / "run", transcripts=answers)
    found = story(run, question=key(story(run), "?"))
    assert (found["evaluations"], len(found["rounds"]), found["rounds"][-1]) == (500, 40, 499)
    assert 101 in [each["round"] for each in found["answers"]]
    assert found["questions"][0]["first_right"] == 101


def test_settings_are_shown_as_they_stand_whatever_they_are(tmp_path: Path) -> None:
    assert read_text(tmp_path) == ""
    file = tmp_path / "config.toml"
    for data, text, rounds in (
        (b"rounds = 7\n[a.b]\nc = 1\n", "rounds = 7\n[a.b]\nc = 1\n", 7),
        (b"rounds = 'x'\xff", "rounds = 'x'\ufffd", None),
        (b"a = " + b"[" * 10_000, "a = " + "[" * 10_000, None),
    ):
        file.write_bytes(data)
        assert (read_text(tmp_path), told_by(read_text(tmp_path))[0]) == (text, rounds)
    file.write_bytes(b"x" * 10**6)
    assert len(read_text(tmp_path)) == 1 << 18


def test_settings_are_parsed_once_however_often_a_page_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr("shoal_web.watch.folder.parse_toml", lambda data: parsed.append(data) or {"rounds": 5})
    assert [told_by("rounds = 5  # once")[0] for _ in range(3)] == [5] * 3
    assert len(parsed) == 1


def test_settings_that_this_version_does_not_know_are_a_warning(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [metric(1, "ada")])
    (run / "config.toml").write_text("rounds = 7\n[learner]\nbeta = 0.04\n")
    with closing(FolderSource(run, "run")) as source:
        summary = source.summary()
    assert summary["warnings"] == ["settings that this version does not know are ignored: learner.beta"]
    assert summary["of_rounds"] == 7


def test_how_long_the_rest_takes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [metric(at, "ada", time=1e9 + 3 * at) for at in range(11)])
    metrics = Metrics(run / "metrics.jsonl")
    assert seconds_left(metrics, 20) is None
    metrics.look()
    assert seconds_left(metrics, 20) == pytest.approx(30)
    assert seconds_left(metrics, 5) == 0
    assert seconds_left(metrics, None) is None
