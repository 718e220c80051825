"""Scoring of answers to data sets."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from data_files import data_config, write
from hypothesis import given
from hypothesis import strategies as st

from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.tasks.data.scores import kind_of, score


@pytest.mark.parametrize(
    ("kind", "right", "good", "bad"),
    [
        ("exact", "San  Marino", ["San Marino", " San Marino\n"], ["san marino", "San Marino.", ""]),
        (
            "number",
            "1,250",
            ["1250", "So it is 1,250.0.", "$1250", "first 3, then 1250"],
            ["1250 or 3", "", "x", "12.5"],
        ),
        ("number", "-3", ["-3", "−3", "it is -3.00"], ["3", "5-3"]),
        (
            "choice",
            "B",
            [
                "B",
                "b",
                "(B)",
                "B.",
                "B) Rome",
                "The answer is B.",
                "Answer: (b)",
                r"So the answer is \boxed{B}",
                "**B**",
                "The correct answer is:\n\n**B**",
                r"Answer: $\boxed{B}$",
                "The answer is B, since option A is too small.",
                "The best answer is (b) and not option (a).",
                "I take option B.",
                "Option A? No. The answer is C. Wait: the answer is B.",
                "I rule out answer A. So option B is right.",
                "Answer A is too small. I choose option B.",
                "Answer A) 3 is wrong.\nFinal choice: B",
                "Answer A is wrong, answer C too. Choice B it is.",
                "Answer B",
                "**Answer:** B",
            ],
            [
                "The answer is A, and not option B",
                "A",
                "",
                "Because",
                "I think so",
                "The answer is a big city",
                "AB",
                "Answer: A or else",
            ],
        ),
    ],
)
def test_what_is_right_and_what_is_not(kind: str, right: str, good: list[str], bad: list[str]) -> None:
    assert [score(kind, said, right) for said in good] == [1.0] * len(good)
    assert [score(kind, said, right) for said in bad] == [0.0] * len(bad)


@pytest.mark.parametrize(
    ("right", "kind"),
    [("12", "number"), ("-1,250.5", "number"), ("B", "choice"), ("(C)", "choice"), ("3/4", "exact"), ("Rome", "exact")],
)
def test_which_kind_fits(right: str, kind: str) -> None:
    assert kind_of(right) == kind
    assert score(kind, right, right) == 1.0


def test_a_right_answer_without_a_letter_is_no_choice() -> None:
    assert [score("choice", said, "2") for said in ("2", "none of them", "", "B")] == [0.0] * 4


@given(st.text(), st.text(max_size=20).filter(str.strip))
def test_any_answer_has_a_score(said: str, right: str) -> None:
    assert {score(kind, said, right) for kind in ("exact", "number", "choice")} <= {0.0, 1.0}
    assert score(kind_of(right.strip()), right.strip(), right.strip()) == 1.0


@pytest.mark.parametrize(
    "said", [" " * 100_000, "answer " * 15_000, "9" * 100_000, "answer is " + " " * 90_000 + "B", "("]
)
def test_long_answers_take_no_time(said: str) -> None:
    begun = time.process_time()
    for kind in ("exact", "number", "choice"):
        assert score(kind, said, "B" if kind == "choice" else "7") == 0.0
    assert time.process_time() - begun < 5


RIGHT = [
    r"\frac{1}{2}",
    r"\left( 3, \frac{\pi}{2} \right)",
    "34",
    "x^3 + 2x",
    "[2,5)",
    r"3\sqrt{13}",
    r"\$36",
    r"90^\circ",
]
HOSTILE = [
    "$__import__('os').system('touch pwned')$",
    r"\boxed{__import__('os').system('touch pwned')}",
    "1+__import__('os').system('touch pwned')",
    "9**9**9**9",
    "$9^{9^{9^{9}}}$",
    r"$\frac{1}{" * 200,
    "(" * 2000,
    "½ \ud800 \x00",
]


@pytest.mark.slow
def test_math_in_the_worker(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    rows = [{"problem": f"Number {n}?", "answer": answer} for n, answer in enumerate(RIGHT)]
    config = data_config(write(tmp_path / "m.jsonl", rows), {"score": "math"})
    tasks = Tasks(config)
    found = {tasks.made("m", seed, 0).text: tasks.made("m", seed, 0) for seed in range(200)}
    assert len(found) == len(RIGHT)
    with Verifier(config) as verifier:
        for number, answer in enumerate(RIGHT):
            question = found[f"Number {number}?"]
            said = [answer, f"The answer is ${answer}$.", f"So it is \\boxed{{{answer}}}.", r"\boxed{7777}", ""]
            assert verifier.score([(question.id, said)]) == [[1.0, 1.0, 1.0, 0.0, 0.0]], answer
        assert not verifier.trouble
        half = found["Number 0?"].id
        assert verifier.score([(half, ["0.5", "2/4", r"$\frac{2}{4}$", "0.6"])]) == [[1.0, 1.0, 1.0, 0.0]]
        [hostile] = verifier.score([(half, HOSTILE)])
        assert hostile == [0.0] * len(HOSTILE)
        assert verifier.failures["timeout"] <= 2
        assert verifier.score([(half, ["1/2"])]) == [[1.0]]
    assert not list(tmp_path.rglob("pwned"))
