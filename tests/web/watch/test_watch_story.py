"""What the window says a node learned, and the settings of runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from watched import ASKED, lesson, metric, told, told_run, write_run

pytest.importorskip("duckdb")

from shoal.runs.folder import RunFolder
from shoal.runs.tables import TRANSCRIPTS
from shoal_web.watch.folder import FolderSource, listed, read_settings
from shoal_web.watch.metrics import Metrics
from shoal_web.watch.nodes import seconds_left
from shoal_web.watch.source import Data, GraphQuery, StoryQuery


def story(run: Path, node: str = "ada", question: str | None = None) -> Data:
    with closing(FolderSource(run, "run")) as source:
        return dict(source.story(StoryQuery(node=node, question=question)))


def test_it_begins_with_a_question_that_turned_right(tmp_path: Path) -> None:
    found = story(told_run(tmp_path / "run"))
    assert found["rounds"] == [0, 10, 20, 30]
    assert {each["question"]: each["marks"] for each in found["questions"]} == ASKED
    [chosen] = [each for each in found["questions"] if each["key"] == found["chosen"]]
    assert (chosen["question"], chosen["answer"], chosen["first_right"]) == ("gcd of 12, 18?", "6", 20)
    assert [(each["round"], each["completion"]) for each in found["answers"]] == [
        (0, "7"),
        (10, "7"),
        (20, "6"),
        (30, "6"),
    ]


def test_it_says_what_was_trained_on_just_before(tmp_path: Path) -> None:
    before = story(told_run(tmp_path / "run"))["before"]
    assert (before["after"], before["until"]) == (10, 20)
    assert [(each["maker"], each["peer"], each["rollouts"]) for each in before["makers"]] == [
        ("ada", False, 1),
        ("bob", True, 1),  # neither the one of another task nor those of other rounds, learners or without a gradient
    ]
    last = before["last"]
    assert (last["maker"], last["round"], last["made"], last["completion"], last["best"]) == ("bob", 19, 18, "6", 1.0)


@pytest.mark.slow
def test_another_question_and_one_that_was_never_right(tmp_path: Path) -> None:
    run = told_run(tmp_path / "run")
    for wanted, first in (("gcd of 6, 18?", 0), ("gcd of 12, 30?", None)):
        [key] = [each["key"] for each in story(run)["questions"] if each["question"] == wanted]
        found = story(run, question=key)
        assert found["chosen"] == key
        assert found["before"] is None
        assert next(each for each in found["questions"] if each["key"] == key)["first_right"] == first
    assert story(run, question="00000000")["answers"]  # one that there is not: as without
    assert story(run, node="nobody")["questions"] == []


def test_what_a_node_trained_on(tmp_path: Path) -> None:
    with closing(FolderSource(told_run(tmp_path / "run"), "run")) as source:
        edges = [each for each in source.graph(GraphQuery())["edges"] if each["node"] == "ada"]
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
    assert [each["conversation"] for each in story(folder.path)["answers"]] == [[("8", "lower"), ("4", "right")], None]


def test_many_evaluations_are_thinned_and_the_first_right_one_stays(tmp_path: Path) -> None:
    answers = {at: [told("ada", "?", str(at), float(at >= 101))] for at in range(0, 500)}
    found = story(write_run(tmp_path / "run", transcripts=answers))
    assert (found["evaluations"], len(found["rounds"]), found["rounds"][-1]) == (500, 40, 499)
    assert 101 in [each["round"] for each in found["answers"]]
    assert found["questions"][0]["first_right"] == 101


def test_a_label_with_a_level_is_its_task(tmp_path: Path) -> None:
    answers = {at: [told("ada", "?", "6", float(at), task="gcd@2")] for at in (0, 1)}
    learned = {1: [lesson("ada", "bob", 0)]}
    before = story(write_run(tmp_path / "run", learned=learned, transcripts=answers))["before"]
    assert [each["maker"] for each in before["makers"]] == ["bob"]
    assert "question" not in before["last"]  # bob's folder is elsewhere


def test_settings_are_listed_whatever_they_are(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == {}
    file = tmp_path / "config.toml"
    file.write_text('seed = 1\n[experiment]\nadversaries = 2\nattack = "spam"\n[a.b]\nc = ["x", 1]\nd = "y"\n')
    settings = read_settings(tmp_path)
    assert listed(settings)[-2:] == [{"name": "a.b.c", "value": '["x", 1]'}, {"name": "a.b.d", "value": "y"}]
    file.write_text("".join(f"s{at} = '{'x' * 400}'\n" for at in range(600)))
    assert len(listed(read_settings(tmp_path))) == 500
    assert max(len(each["value"]) for each in listed(read_settings(tmp_path))) == 300
    file.write_bytes(b"\xff")
    assert read_settings(tmp_path) == {}


def test_settings_are_parsed_once_however_often_a_page_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []

    def parse(data: bytes) -> dict[str, int]:
        parsed.append(data)
        if b"=" not in data:
            raise ValueError
        return {"seed": len(parsed)}

    monkeypatch.setattr("shoal_web.watch.folder.parse_toml", parse)
    for text, expected in ((f"seed = 1 # {tmp_path}", {"seed": 1}), (f"wrong {tmp_path}", {})):
        (tmp_path / "config.toml").write_text(text)
        assert [read_settings(tmp_path) for _ in range(3)] == [expected] * 3
    assert len(parsed) == 2


def test_how_long_the_rest_takes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [metric(at, "ada", time=1e9 + 3 * at) for at in range(11)])
    metrics = Metrics(run / "metrics.jsonl")
    assert seconds_left(metrics, 20) is None
    metrics.look()
    assert seconds_left(metrics, 20) == pytest.approx(30)
    assert seconds_left(metrics, 5) == 0
    assert seconds_left(metrics, None) is None
