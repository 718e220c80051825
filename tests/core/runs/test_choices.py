"""What a run chooses where the user gives nothing, and that it says so."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.config.load import config_from_keywords, make_config
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.rollout import Message, Question, QuestionId
from shoal.runs import choices, machine
from shoal.runs.choices import choose
from shoal.runs.machine import busy_cores, usable_cores
from shoal.tasks import Tasks

SMALL = {"round": {"workers": 0}, "threads": 1, "policy": {"device": "cpu"}}


class Silent:
    """A task that does not tell its right answers."""

    name, version, config = "silent", "1", "1"

    def question(self, seed: int, index: int) -> Question:
        return Question(QuestionId(self.name, "1", "1", seed, index), (Message("user", f"Say {seed + index}."),))

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        return [0.0 for _ in answers]


class Telling(Silent):
    """One that does; some questions have no single right answer."""

    name = "telling"

    def __init__(self, length: int = 4) -> None:
        self.length = length

    def answer(self, question: QuestionId) -> str | None:
        return None if question.index % 2 else "9" * self.length


def config(*tasks: dict[str, Any], **settings: Any) -> Config:
    return make_config(SMALL | {"tasks": {"sources": list(tasks)}} | settings, "a test", allow_code=True)


def here(kind: str, **settings: Any) -> dict[str, Any]:
    return {"name": f"{__name__}:{kind}", **settings}


@pytest.mark.parametrize(
    ("tasks", "tokens"),
    [
        ([here("Telling")], 24),
        ([here("Telling", answer="tag")], 64),
        ([here("Telling", answer="tag", examples=1)], 40),
        ([here("Telling", answer="is (.+)")], 64),
        ([here("Telling", answer="boxed", parameters={"length": 60})], 88),
        ([here("Telling", parameters={"length": 40})], 56),
        ([here("Telling", parameters={"length": 4000})], 256),
        ([here("Telling", answer="tag", system_prompt="Think, then answer.")], 256),
        ([here("Silent")], 64),
        ([here("Telling"), here("Silent")], 64),
        ([here("Telling", parameters={"length": 60}), here("Silent")], 80),
        ([{"name": "gcd"}], 24),
    ],
)
def test_answers_are_as_long_as_right_ones_need(tasks: list[dict[str, Any]], tokens: int) -> None:
    chosen, lines = choose(config(*tasks))
    assert chosen.policy.max_completion_length == tokens
    assert any(line.startswith("answers ") and f"at most {tokens} tokens" in line for line in lines)


@pytest.mark.parametrize(
    ("asked", "tokens"),
    [
        ({"suite": "pond"}, 16),
        ({"suite": "tagged"}, 32),
        ({"suite": "paper"}, 256),
        ({"suite": "paper", "only": ["base_conversion"], "examples": 2}, 48),
        ({"suite": "pond", "only": ["chain_sum"], "examples": 2}, 24),
        ({"suite": "pond", "only": ["chain_sum"], "answer": "last_number"}, 64),
    ],
)
def test_suites_may_be_asked_in_other_ways(asked: dict[str, Any], tokens: int) -> None:
    assert choose(make_config(SMALL | {"tasks": asked}, "a test"))[0].policy.max_completion_length == tokens


def test_what_is_given_stays_and_is_not_spoken_of() -> None:
    given = config(
        here("Telling"),
        checkpoint_every=5,
        policy={"device": "cpu", "max_completion_length": 7},
        learner={"learning_rate": 1e-3, "optim": "adamw"},
        evaluation={"questions": 2, "samples": 3},
    )
    chosen, lines = choose(given)
    assert lines == []
    assert chosen == given.resolved()


def test_it_chooses_once() -> None:
    chosen, lines = choose(config(here("Telling"), threads=0))
    assert chosen.threads >= 1
    assert [line.split("  ")[0] for line in lines] == ["answers", "held-out", "learning rate", "threads"]
    again, _ = choose(chosen)
    assert again == chosen


@pytest.mark.parametrize(("size", "device"), [(1.2e6, "cpu"), (135e6, "auto")])
def test_tiny_models_compute_on_the_processor_beside_a_gpu(
    monkeypatch: pytest.MonkeyPatch, size: float, device: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(choices, "parameters", lambda model: size)
    monkeypatch.setattr(choices, "expected_workers", lambda *_: 0)
    chosen, lines = choose(config(here("Telling"), policy={"device": "auto"}))
    assert chosen.policy.device == device
    assert any(line.startswith("device") for line in lines) == (device == "cpu")
    assert choose(config(here("Telling"), policy={"device": "cuda"}))[0].policy.device == "cuda"


@pytest.mark.parametrize(("busy", "threads"), [(0.0, 4), (0.4, 4), (1.2, 3), (3.9, 1), (9.0, 1)])
def test_threads_are_the_cores_that_are_free(monkeypatch: pytest.MonkeyPatch, busy: float, threads: int) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(choices, "usable_cores", lambda: 4)
    monkeypatch.setattr(machine, "busy_cores", lambda: busy)
    chosen, lines = choose(config(here("Telling"), threads=0))
    assert chosen.threads == threads
    [line] = [line for line in lines if line.startswith("threads")]
    assert f"{threads} on 4 cores" in line
    assert ("other programs" in line) == (threads < 4)


def test_a_share_of_a_large_machine_is_not_less_for_what_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(machine, "busy_cores", lambda: 50.0)
    assert machine.free_cores() == 4


def test_cores_of_this_machine() -> None:
    assert usable_cores() >= 1
    assert busy_cores() >= 0


def test_tasks_that_cannot_be_made_are_refused_before_a_run_has_a_folder() -> None:
    with pytest.raises(UserError, match="no task 'gdc'"):
        choose(config({"name": "gdc"}))


def test_of_a_small_data_set_the_questions_are_counted_and_guppy_is_no_model_for_it(tmp_path: Path) -> None:
    rows = [f'{{"prompt": "What is {n} + 2?", "answer": "{n + 2}"}}' for n in range(30)]
    (tmp_path / "my.jsonl").write_text("\n".join(rows))
    mine = config_from_keywords({"data": str(tmp_path / "my.jsonl"), "threads": 1})
    assert mine.policy.model == ["smollm2"]
    mine.policy.model = ["guppy"]
    _, lines = choose(mine)
    said = {line[:15].strip(): line[15:] for line in lines}
    count = len(Tasks(mine.tasks).held_out(64, 0)["my"])
    assert count < 20
    assert said["held-out"].startswith(f"{count} questions, all that there are (few for a figure: add rows, ")
    assert "--model smollm2" in said["model"]
    mine.policy.model = ["other"]
    _, lines = choose(mine)
    assert not [line for line in lines if line.startswith("model")]
