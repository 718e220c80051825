"""What tasks of one's own may do wrong: one line says so, or the question is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.evaluation.blind import constants
from shoal.tasks import Tasks

CODE = """
from __future__ import annotations
from typing import TYPE_CHECKING
from shoal import Message, Question, QuestionId
if TYPE_CHECKING:
    from elsewhere import Kind

class Sums:
    name, version, config = "sums", "1", ""
    def question(self, seed, index):
        if (seed + index) % 3 == 0:
            raise KeyError(seed)
        id = QuestionId(self.name, self.version, self.config, seed, index)
        return Question(id, (Message("user", f"{seed} + {index}"),))
    def answer(self, question):
        if (question.seed + question.index) % 3 == 1:
            raise RuntimeError("no")
        return str(question.seed + question.index)
    def score(self, question, answers):
        return [float(a == self.answer(question)) for a in answers]

class Numbers(Sums):
    def answer(self, question):
        return question.seed

class Texts(Sums):
    def question(self, seed, index):
        return "2 + 2 ="

class Missing(Sums):
    def __init__(self):
        open("/no/such/file")

def kind() -> Kind:
    return Sums()
"""


def named(folder: Path, what: str, stem: str = "own_failures", **more: int) -> TasksConfig:
    file = folder / f"{stem}.py"
    file.write_text(CODE)
    return TasksConfig(sources=[TaskSpec(name=f"{file}:{what}", **more)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own")


@pytest.mark.parametrize(
    ("what", "message"),
    [("Missing", "FileNotFoundError: .*no/such/file"), ("kind", "annotations cannot be read: NameError: .*'Kind'")],
)
def test_a_task_that_cannot_be_made_is_one_line(folder: Path, what: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Tasks(named(folder, what))


def test_examples_leave_out_questions_that_fail(folder: Path) -> None:
    [question] = Tasks(named(folder, "Sums", examples=2)).draw(1, "key")
    assert [message.role for message in question.examples] == ["user", "assistant"] * 2


def test_a_right_answer_that_is_no_text_is_unknown(folder: Path) -> None:
    tasks = Tasks(named(folder, "Numbers"))
    held_out = tasks.held_out(8, 0)
    assert constants(tasks, held_out) == {"sums": None}
    assert {tasks.answer(question.id) for question in held_out["sums"]} == {None}


def test_a_question_that_is_none_is_told(folder: Path) -> None:
    tasks = Tasks(named(folder, "Texts"))
    tasks.draw(1, "key")
    assert "it gives no shoal.Question, but str" in tasks.trouble


def test_files_of_one_name_are_not_taken_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    Tasks(named(tmp_path / "a", "Sums", "twins_of_own"))
    with pytest.raises(UserError, match="another module is called 'twins_of_own': rename the file"):
        Tasks(named(tmp_path / "b", "Sums", "twins_of_own"))
    with pytest.raises(UserError, match="another module is called 'code'"):
        Tasks(named(tmp_path / "b", "Sums", "code"))
