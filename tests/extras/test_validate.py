"""`shoal validate`: what data are taken for, and what right and wrong answers get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from data_files import SUMS, Rows, write

from shoal.cli.main import main
from shoal.config.load import config_from_keywords
from shoal.config.tasks import TasksConfig
from shoal_extras.validation.command import doubts
from shoal_extras.validation.found import slack

Capture = pytest.CaptureFixture[str]

REWARDS = """
def exact(completions, answer, **kwargs):
    return [3.0 if text.strip().strip("*.") == right else -1.0 for text, right in zip(completions, answer)]

def short(completions, **kwargs):
    return [-len(text) for text in completions]

def broken(completions, **kwargs):
    raise KeyError("no such thing")

def partly(completions, **kwargs):
    return [None if text == "Yes." else float("inf") if text == "42" else 1.0 for text in completions]
"""
TASKS = """
from shoal import Message, Question, QuestionId

class Numbers:
    version = config = "1"

    def __init__(self, name, score):
        self.name, self.scores = name, score

    def question(self, seed, index):
        asked = (Message("user", f"Say {seed % 1000}."),)
        return Question(QuestionId(self.name, self.version, self.config, seed, index), asked)

    def answer(self, question):
        return str(question.seed % 1000)

    def score(self, question, answers):
        return [self.scores(answer, self.answer(question)) for answer in answers]

def generous() -> Numbers:
    return Numbers("generous", lambda said, right: float(right in said or not said))

def stern() -> Numbers:
    return Numbers("stern", lambda said, right: float(said == right and len(right) < 3))
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def validated(capsys: Capture, *words: str, code: int = 0) -> dict[str, Any]:
    """What `shoal validate --json` says of the one task."""
    assert main(["validate", *words, "--json"]) == code
    [found] = json.loads(capsys.readouterr().out).values()
    assert isinstance(found, dict)
    return found


def test_a_data_set_whose_answers_are_right(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path / "sums.jsonl", SUMS)
    found = validated(capsys, "--data", str(path), "--questions", "100")
    assert (found["questions"], found["gold"], found["wrong"]) == (found["answered"], 1.0, [])
    assert found["constant"] == pytest.approx(0.1, abs=0.03), "10 of 100 sums are 9"
    assert found["constant_answer"] == "9"
    assert 0 < found["others"] < 0.2
    assert len(found["rows"]) == 10
    assert found["rows"][0] == {"question": "0 + 0 =", "answer": "0", "read": "0", "kind": "number"}
    assert found["faults"] == []


CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Cuba": "Havana",
    "Peru": "Lima",
    "Chad": "N'Djamena",
}
QUIZ: Rows = [
    {"question": f"What is the capital of {country}?", "choices": sorted(CAPITALS.values()), "answer": index}
    for country, city in CAPITALS.items()
    for index in [sorted(CAPITALS.values()).index(city)]
]
HALVES: Rows = [{"q": f"{n} in half?", "a": f"{n / 2:.1f}".replace(".", ",")} for n in range(20)]
FORMULAS: Rows = [{"problem": f"Halve {n}x + 1.", "answer": f"\\frac{{{n}x + 1}}{{2}}"} for n in range(3, 9)]


@pytest.mark.parametrize(
    ("rows", "more", "scored", "forms"),
    [
        (SUMS, "", "number: 100 of 100", {"with a unit", "off by one", "other sign", "in a sentence"}),
        (HALVES, ",decimal=comma", "number: 20 of 20", {"off by one"}),
        (QUIZ, "", "choice", {"with its text", "two answers", "the question"}),
        ([{"q": f"Capital of {a}?", "a": b} for a, b in CAPITALS.items()], "", "text: 6 of 6", {"two answers", "bold"}),
        (FORMULAS, ",score=math", "math: as you say", {"boxed", "in a sentence", "another answer"}),
    ],
)
def test_usual_forms_of_right_answers_get_1_and_of_wrong_ones_0(
    tmp_path: Path, capsys: Capture, rows: Rows, more: str, scored: str, forms: set[str]
) -> None:
    if "math" in more:
        pytest.importorskip("math_verify")
    path = write(tmp_path / "rows.jsonl", rows)
    found = validated(capsys, "--data", f"{path}{more}")
    assert found["about"]["scored"].startswith(scored)
    assert forms <= found["forms"].keys()
    off = {name: form for name, form in found["forms"].items() if form["mean"] != form["expected"]}
    assert not off
    assert all(form["certain"] for form in found["forms"].values())


def test_programs_are_tried_in_blocks(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("pydantic_monty")
    rows = [
        {
            "text": f"Write add{n}(x).",
            "code": f"def add{n}(x):\n    return x + {n}",
            "test_list": [f"assert add{n}(2) == {n + 2}"],
        }
        for n in range(4)
    ]
    found = validated(capsys, "--data", str(write(tmp_path / "code.jsonl", rows)))
    assert found["about"]["scored"] == "code: by these columns"
    assert found["slack"]["in a comment"] == 1
    assert {"without a block", "in a text", "behind thoughts", "nothing"} <= found["forms"].keys()
    assert all(form["mean"] == form["expected"] for form in found["forms"].values())


def test_a_row_of_another_kind_is_named_also_where_the_kind_was_said(tmp_path: Path, capsys: Capture) -> None:
    rows = [*SUMS[:20], {"prompt": "What is it?", "answer": "nobody knows"}]
    path = write(tmp_path / "sums.jsonl", rows)
    for data in (str(path), f"{path},score=number"):
        assert main(["validate", "--data", data]) == 0
        assert "1 of another kind: row 21 of sums.jsonl: 'nobody knows'" in capsys.readouterr().out


def test_what_was_taken_for_what_and_what_to_say_if_it_is_wrong(tmp_path: Path, capsys: Capture) -> None:
    rows = [{"frage": f"{a} + {a}?", "loesung": str(2 * a)} for a in range(30)]
    rows += [rows[3], {"frage": "4 + 4?", "loesung": "9"}, {"frage": "", "loesung": "1"}]
    path = write(tmp_path / "doubles.csv", rows)
    assert main(["validate", "--data", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "taken for question 'frage', right answer 'loesung'" in out
    assert f"--data '{path},prompt=COLUMN,answer=COLUMN,score=KIND' (columns: frage, loesung)" in out
    assert "1 repeat an earlier one" in out
    assert "2 contradict: rows 6, 33 ask the same and have different right answers" in out
    assert "3 rows left out, as row 34 of doubles.csv has no 'frage'" in out


def test_scorers_that_are_wrong_are_named_and_the_exit_code_says_so(tmp_path: Path, capsys: Capture) -> None:
    Path("own_tasks.py").write_text(TASKS)
    found = validated(capsys, "--task", "own_tasks:generous", "--questions", "20", code=1)
    assert [said.split(", such")[0] for said in found["faults"]] == [
        "a wrong form earns 1: nothing",
        "a wrong form earns 1: the question",
    ]
    assert found["forms"]["two answers"]["mean"] == 1
    assert not found["forms"]["two answers"]["certain"], "another task may allow it"
    assert main(["validate", "--task", "own_tasks:stern", "--questions", "20"]) == 1
    out = capsys.readouterr().out
    assert "right answers do not get 1" in out
    assert "gets 0: Say " in out


def test_fraction_simplification_lets_text_follow_unless_it_is_asked_strictly(capsys: Capture) -> None:
    words = ("--task", "fraction_simplification", "--questions", "40")
    loose = validated(capsys, *words)["slack"]
    assert 0 < loose["after"] == loose["in another script"] < 1, "of the styles that it draws, one is compared strictly"
    assert (loose["before"], loose["in thoughts"]) == (0, 1)
    strict = validated(capsys, *words, "--answer", "strict")
    assert strict["gold"] == 1
    assert set(strict["slack"].values()) == {0}


@pytest.mark.parametrize("answer", ["whole", "strict"])
def test_slack_of_data_is_shown(tmp_path: Path, capsys: Capture, answer: str) -> None:
    path = write(tmp_path / "sums.jsonl", SUMS)
    found = validated(capsys, "--data", str(path), "--answer", answer)
    assert found["gold"] == 1
    assert {found["slack"][place] for place in ("after", "in thoughts")} == {float(answer == "whole")}
    assert main(["validate", "--data", str(path), "--answer", answer]) == 0
    assert (
        f"that get 1 with foreign text: {'1 (' if answer == 'whole' else '0 (before, after'}" in capsys.readouterr().out
    )


def test_the_slack_of_a_suite_is_a_line() -> None:
    pond = TasksConfig(only=["chain_sum", "spell_backward"])
    assert slack(pond).startswith("slack: a right answer earns with any text beside it")
    assert "--answer strict" in slack(pond)
    strict = pond.model_copy(update={"answer": "strict"})
    assert slack(strict) == "slack: none: a right answer earns nothing with foreign text beside it"


@pytest.mark.slow
def test_reward_functions_are_called_with_the_same_answers(tmp_path: Path, capsys: Capture) -> None:
    Path("own_rewards.py").write_text(REWARDS)
    path = str(write(tmp_path / "sums.jsonl", SUMS[:30]))
    found = validated(capsys, "--data", path, "--reward", "own_rewards:exact")
    about = found["rewards"]["own_rewards:exact"]
    assert (about["least"], about["most"], about["none"], about["failed"]) == (-1, 3, 0, 0)
    assert about["ms"] > 0
    assert found["forms"]["bold"]["rewards"] == {"own_rewards:exact": 3}
    assert found["forms"]["other sign"]["rewards"] == {"own_rewards:exact": -1}
    words = ["--reward", "own_rewards:short", "--reward", "own_rewards:broken"]
    short, broken = validated(capsys, "--data", path, *words, code=1)["faults"]
    assert short.startswith("own_rewards:short gives right answers no more than wrong ones: -1")
    assert broken.startswith("own_rewards:broken fails on all answers: function 'own_rewards:broken': KeyError")


def test_prompts_without_answers(tmp_path: Path, capsys: Capture) -> None:
    Path("own_rewards.py").write_text(REWARDS)
    path = str(write(tmp_path / "p.jsonl", [{"prompt": f"Say {n}"} for n in range(9)]))
    assert main(["validate", "--data", path]) == 0
    assert "no right answers are known of: p" in capsys.readouterr().out
    found = validated(capsys, "--data", path, "--reward", "own_rewards:partly")
    about = found["rewards"]["own_rewards:partly"]
    assert (about["answers"], about["none"], about["failed"]) == (36, 9, 9)
    assert "it returned inf" in about["trouble"]


@pytest.mark.slow
def test_any_task_and_suite(capsys: Capture) -> None:
    suite = ["--suite", "tagged", "--only", "chain_sum", "--only", "spell_backward"]
    assert main(["validate", *suite, "--questions", "20"]) == 0
    out = capsys.readouterr().out
    assert "20 of 20" in out
    assert "spell_backward: right answers get 1 (bare, behind thoughts, boxed," in out
    assert main(["validate", "--task", "larger", "--questions", "20", "--answer", "Answer: (.+)"]) == 0


def test_mistakes(capsys: Capture) -> None:
    assert main(["validate", "--data", "gone.jsonl"]) == 2
    assert "there is no file gone.jsonl" in capsys.readouterr().err
    assert main(["validate", "--questions", "0"]) == 2


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(f"{n} + 1?", n + 1) for n in range(14)], " to measure, are few: chance decides\n  do: give 50 rows or more"),
        ([(f"Is {n} odd?", "yes" if n % 8 else "no") for n in range(100)], "one answer to all questions is right for"),
        ([(f"{n} + 1?", n + 1) for n in range(100)], ""),
    ],
)
def test_what_is_doubtful_of_data_is_said_in_two_lines(tmp_path: Path, rows: list[tuple[str, Any]], said: str) -> None:
    (tmp_path / "quiz.csv").write_text("question,answer\n" + "".join(f"{q},{a}\n" for q, a in rows))
    config = config_from_keywords({"data": str(tmp_path / "quiz.csv")})
    found = doubts(config)
    assert len(found) == bool(said)
    for text in found:
        assert said in text
        assert text.startswith("quiz: ")
        assert max(len(line) for line in f"warning: {text}".splitlines()) <= 80


def test_a_function_that_takes_the_right_answer_anywhere_is_doubtful(tmp_path: Path) -> None:
    (tmp_path / "loose.py").write_text(
        "def score(completions, answer, **_):\n"
        "    return [float(str(a) in str(c)) for c, a in zip(completions, answer)]\n"
    )
    (tmp_path / "quiz.csv").write_text("question,answer\n" + "".join(f"{n} + 1?,{n + 1}\n" for n in range(100, 200)))
    reward = f"{tmp_path / 'loose.py'}:score"
    config = config_from_keywords({"data": str(tmp_path / "quiz.csv"), "rewards": [reward]})
    [said] = doubts(config)
    assert said.startswith(f"quiz: a wrong form earns 1 by {reward}")
    assert said.splitlines()[1] == "  do: correct the scorer (`shoal validate` shows all forms)"


def test_prompts_without_right_answers_are_not_doubtful(tmp_path: Path) -> None:
    Path("own_rewards.py").write_text(REWARDS)
    path = write(tmp_path / "p.jsonl", [{"prompt": f"Say {n}"} for n in range(300)])
    assert doubts(config_from_keywords({"data": str(path), "rewards": ["own_rewards.py:short"]})) == []
