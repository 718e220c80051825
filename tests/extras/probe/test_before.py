"""What `shoal run` does before it trains on data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from data_files import SUMS, write
from rich.console import Console

from shoal.cli.main import main
from shoal.config.load import config_from_keywords
from shoal.config.settings import Config
from shoal.config.tasks import TaskSpec
from shoal.errors import UserError
from shoal.rollout import Completion, FinishReason, Part, Question
from shoal_extras.probe import before, finding
from shoal_extras.probe.command import is_data
from shoal_extras.probe.finding import Finding, Speed, asked_so, find
from shoal_extras.probe.probe import WAYS, Found

SPEED = Speed(load=5, answer=4, update=6, each=0.0625)


class Model:
    """Answers with the last digit of a sum, where it has seen examples."""

    asked = 0

    def generate(self, questions: Sequence[Question], G: int, seed: int) -> list[list[Completion]]:
        Model.asked += 1
        ids = (1,) * 5
        return [
            [Completion((Part(text),), FinishReason.stop, ids, (0.0,) * 5) for text in ("no", *self.said(question))]
            + [Completion((Part("no"),), FinishReason.stop, ids, (0.0,) * 5)] * (G - 2)
            for question in questions
        ]

    def said(self, question: Question) -> list[str]:
        one, two = question.prompt[-1].content.removesuffix(" =").split(" + ")
        return [str(int(one) + int(two)) if question.examples else "none"]


@pytest.fixture
def quiz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of sums, a model that answers them after examples, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("shoal_extras.doctor.forecast.trial_policy", lambda config, model: Model())
    monkeypatch.setattr(finding, "measure", lambda config, policy, loaded: SPEED)
    monkeypatch.setattr(finding, "_model_hash", lambda model: f"hash of {model}")
    Model.asked = 0
    return write(tmp_path / "quiz.jsonl", SUMS)


def settings(file: Path, **more: Any) -> Config:
    return config_from_keywords({"data": str(file), **more})


def quiet() -> Console:
    return Console(quiet=True)


def test_the_way_found_is_in_the_settings_of_the_run(quiz: Path) -> None:
    prepared = before.prepare(settings(quiz), "auto", quiet())
    assert prepared.chosen == {"quiz": "examples"}
    [spec] = prepared.config.tasks.sources
    assert (spec.examples, spec.answer, spec.parameters["path"]) == (3, "whole", str(quiz))
    counts = {one.way.name: one for one in prepared.ways["quiz"]}
    assert sum(counts["plain"].right) == 0 < counts["plain"].answers
    assert counts["examples"].live_share == 1 == min(counts["examples"].right)


def test_it_is_found_once_for_the_same_model_data_and_settings(quiz: Path) -> None:
    console = Console(record=True, width=200)
    first = before.prepare(settings(quiz), "auto", console)
    assert "as found before" not in console.export_text()
    asked = Model.asked
    again = before.prepare(settings(quiz), "auto", console)
    assert (again, Model.asked) == (first, asked)
    assert "as found before" in console.export_text()
    before.prepare(settings(quiz, temperature=0.5), "auto", quiet())
    assert Model.asked > asked
    asked = Model.asked
    write(quiz, [*SUMS, {"prompt": "11 + 12 =", "answer": "23"}])
    before.prepare(settings(quiz), "auto", quiet())
    assert Model.asked > asked


def test_a_damaged_file_in_the_cache_is_found_anew(quiz: Path, tmp_path: Path) -> None:
    found = find(settings(quiz), "smollm2", 9)
    [kept] = (tmp_path / "cache" / "shoal" / "asking").iterdir()
    for damage in (b"", b"{}", b'{"ways": {}, "length": 8, "speed": null}', kept.read_bytes()[:-9]):
        kept.write_bytes(damage)
        assert find(settings(quiz), "smollm2", 9) == found
    assert find(settings(quiz), "smollm2", 9) == replace(found, known=True)


def test_ctrl_c_ends_it_and_keeps_nothing(quiz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: Model, questions: Sequence[Question], G: int, seed: int) -> list[list[Completion]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "generate", stopped)
    with pytest.raises(KeyboardInterrupt):
        before.prepare(settings(quiz), "auto", quiet())
    assert not (tmp_path / "cache" / "shoal" / "asking").exists()


@pytest.mark.parametrize(
    ("ask", "more", "examples", "system"),
    [
        ("plain", {}, 0, ""),
        ("examples", {}, 3, ""),
        ("short", {}, 0, "Reply with the answer alone."),
        ("auto", {"examples": 2}, 0, ""),  # what the user says stays where it was said
    ],
)
def test_who_says_how_to_ask_is_not_asked_for_it(
    quiz: Path, ask: str, more: dict[str, Any], examples: int, system: str
) -> None:
    prepared = before.prepare(settings(quiz, rounds=7, **more), ask, quiet())
    [spec] = prepared.config.tasks.sources
    assert (spec.examples, spec.system_prompt, prepared.config.rounds) == (examples, system, 7)
    assert (Model.asked, prepared.ways) == (0, {})


def test_guppy_is_asked_as_it_was_taught(quiz: Path) -> None:
    config = settings(quiz, model="guppy")
    assert before.prepare(config, "auto", quiet()).config == config
    assert Model.asked == 0


def test_rounds_are_as_many_as_a_quarter_of_an_hour_has(quiz: Path) -> None:
    config = before.prepare(settings(quiz), "auto", quiet()).config
    assert 60 <= config.rounds <= 80  # of ten seconds
    assert config.rounds % 10 == 0
    assert before.prepare(settings(quiz, rounds=500), "auto", quiet()).config.rounds == 500
    fast, _ = before.forecast(settings(quiz), Speed(1, 0.1, 0.1, 0.01))
    slow, line = before.forecast(settings(quiz), Speed(60, 200, 200, 3))
    assert (fast, slow) == (100, before.FEWEST)
    assert line.startswith("about 137 min")  # told as it is
    wanted, line = before.forecast(settings(quiz, rounds=2), Speed(1, 10, 20, 0.1))
    assert (wanted, "2 rounds of 30 s" in line) == (2, True)


def test_answers_may_be_as_long_as_nearly_all_were(quiz: Path) -> None:
    config = settings(quiz)
    way = WAYS[0]
    [spec] = config.tasks.sources
    found = Finding({"quiz": [Found(way.of(spec), way, 4, [1], [True], 4, [3, 4, 5, 40])]}, 48, None)
    assert asked_so(config, found).policy.max_completion_length == 48
    short = Finding({"quiz": [Found(way.of(spec), way, 4, [1], [True], 4, [3, 4, 5, 5])]}, 48, None)
    assert asked_so(config, short).policy.max_completion_length == 8
    assert asked_so(settings(quiz, max_completion_length=99), short).policy.max_completion_length == 99


def test_a_mistyped_way_and_two_ways_are_told(quiz: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'examples'"):
        before.prepare(settings(quiz), "exmples", quiet())
    with pytest.raises(UserError, match="leave it out"):
        before.prepare(settings(quiz, examples=2), "plain", quiet())


def test_ask_is_for_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "--ask", "plain", "--rounds", "1", "--out", str(tmp_path / "run")]) == 2
    assert "shoal run FILE" in capsys.readouterr().err
    assert main(["run", "--resume", str(tmp_path), "--ask", "plain"]) == 2
    assert "keeps its way of asking" in capsys.readouterr().err


def test_an_engine_of_another_package_is_not_tried(quiz: Path) -> None:
    config = settings(quiz, engine="vllm")
    assert before.prepare(config, "auto", quiet()).config == config
    assert Model.asked == 0


def test_a_word_is_data_or_a_model(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "rows").mkdir()
    data = ["quiz.csv", "a/b.XLSX", "x.jsonl.gz", "q.csv,score=number", "gsm8k", "openai/gsm8k", str(tmp_path / "rows")]
    assert all(map(is_data, data))
    models = ["smollm2", "HuggingFaceTB/SmolLM2-135M", "a/model.gguf", "http://localhost:8080/v1"]
    assert not any(map(is_data, [*models, str(tmp_path / "model")]))


def test_where_nothing_is_right_it_says_so_and_which_way_is_taken(quiz: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "said", lambda self, question: ["none"])
    console = Console(record=True, width=300)
    prepared = before.prepare(settings(quiz), "auto", console)
    assert prepared.chosen == {}
    assert all(sum(one.right) == 0 < one.answers for one in prepared.ways["quiz"])
    said = " ".join(console.export_text().split())
    assert (
        "answers are right; so far no question has right and wrong ones; taken: the question alone (--ask plain)"
        in said
    )


@pytest.mark.parametrize(
    ("right", "live", "chosen", "said"),
    [
        (0, 0, {}, "nothing to learn: all 512 answers, in 2 ways of asking, are wrong\n  do: take easier questions"),
        (256, 0, {}, "nothing to learn: all 512 answers, in 2 ways of asking, are right\n  do: take harder questions"),
        (8, 1, {}, ""),
        (0, 0, {"quiz": "plain"}, ""),
    ],
)
def test_it_says_where_no_way_of_asking_teaches_anything(
    right: int, live: int, chosen: dict[str, str], said: str
) -> None:
    spec = TaskSpec(name="gcd")
    found = [Found(spec, way, 8, [right // 32] * 32, [bool(live), *[False] * 31]) for way in WAYS[:2]]
    assert before.Prepared(Config(), {"quiz": found}, chosen).verdict.startswith(said)
    assert bool(before.Prepared(Config(), {"quiz": found}, chosen).verdict) == bool(said)
    few = [Found(spec, WAYS[0], 8, [0], [False])]
    assert not before.Prepared(Config(), {"quiz": few}).verdict
