"""Scores by math-verify in the worker, with hostile formulas."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_files import data_config, write

from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks

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
