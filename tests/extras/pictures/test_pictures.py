"""Pictures are drawn alike everywhere, are part of what a question is, and never travel."""

from __future__ import annotations

import pytest

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.evaluation.blind import constants
from shoal.rollout import Completion, Picture, Question, Rollout, hash_of
from shoal.tasks import Tasks
from shoal.tasks.draw import InvalidRollout, validate
from shoal_extras.pictures.canvas import COLOURS, SHAPES, Canvas
from shoal_extras.pictures.questions import CompareBars, CountDots
from shoal_web.watch.pictures import shown_again


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    return Tasks(TasksConfig(suite="pictures"))


def test_the_pixels_are_those_of_every_other_machine(tasks: Tasks) -> None:
    """If this fails, nodes with another version refuse each other's rollouts: raise `PictureTask.version`."""
    questions = [tasks.made(label, 7, index) for label in tasks.labels for index in range(20)]
    assert hash_of([question.content for question in questions]) == "2d03d2c66522c6937482c2fb534a9730"


def test_each_question_has_a_picture_and_an_answer_that_scores(tasks: Tasks) -> None:
    for label, task in zip(tasks.labels, tasks.tasks, strict=True):
        for index in range(50):
            question = tasks.made(label, 1, index)
            [picture] = question.pictures
            assert (picture.width, picture.height) == (32, 32)
            right = tasks.answer(question.id)
            assert right
            assert task.score(question.id, [right, f" {right.upper()}\n", "", f"{right}{right}"]) == [1, 1, 0, 0]


def test_a_picture_that_is_shown_again_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = shown_again("count_dots", "1", 7, 3)
    assert first
    monkeypatch.setattr(CountDots, "draw", None)
    assert shown_again("count_dots", "1", 7, 3) == first


def test_no_answer_is_right_for_many_questions(tasks: Tasks) -> None:
    shares = constants(tasks, tasks.held_out(100, seed=3))
    assert max(share for share in shares.values() if share is not None) < 0.25


def test_the_picture_says_what_the_answer_is() -> None:
    """A shape has its colour, and a bar its height: the pixels of the picture are counted."""
    for index in range(40):
        name = CompareBars()
        question = name.question(5, index)
        assert isinstance(question, Question)
        pixels = [tuple(question.pictures[0].rgb[at : at + 3]) for at in range(0, 3 * 32 * 32, 3)]
        heights = {colour: pixels.count(rgb) for colour, rgb in COLOURS.items() if rgb in pixels}
        wanted = max if "taller" in question.text else min
        assert CompareBars().answer(question.id) == wanted(heights, key=heights.__getitem__)  # type: ignore[attr-defined]


def test_two_pictures_under_one_text_are_two_questions(tasks: Tasks) -> None:
    one, other = (tasks.made("count_dots", 1, index) for index in (0, 1))
    assert one.text == other.text
    assert one.hash != other.hash
    sides = {tasks.is_held_out(tasks.made("count_dots", 1, index)) for index in range(60)}
    assert sides == {True, False}
    held = tasks.held_out(30, seed=0)["count_dots"]
    assert len({question.content for question in held}) == 30
    assert all(tasks.is_held_out(question) for question in held)


def test_a_rollout_carries_no_picture_and_its_hash_is_about_the_pixels(tasks: Tasks) -> None:
    question = tasks.first("read_number", 5)
    rollout = Rollout(question.id, question.hash, (Completion.of("42"),), "ada", 1)
    assert question.pictures[0].rgb not in rollout.encode()
    assert len(rollout.encode()) < 400
    received = Rollout.decode(rollout.encode())
    again = validate(Tasks(TasksConfig(suite="pictures")), received.question, received.question_hash, 1)
    assert again.pictures == question.pictures
    other = Picture(32, 32, bytes(3 * 32 * 32))
    told = Question(question.id, question.prompt, pictures=(other,)).hash
    with pytest.raises(InvalidRollout, match="question"):
        validate(tasks, received.question, told, 1)


def test_a_picture_has_three_bytes_for_each_pixel() -> None:
    with pytest.raises(ValueError, match="no picture of 2 x 2 pixels"):
        Picture(2, 2, b"\0" * 11)


def test_shapes_are_inside_their_box_and_differ() -> None:
    found = set()
    for shape in SHAPES:
        canvas = Canvas(16, (0, 0, 0))
        canvas.shape(shape, "white", x=8, y=8, radius=5)
        assert canvas.pixels[3:14, 3:14].sum() == canvas.pixels.sum() > 0
        found.add(canvas.pixels.tobytes())
    assert len(found) == len(SHAPES)


def test_worked_examples_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="its questions show pictures"):
        Tasks(TasksConfig(sources=[TaskSpec(name="count_dots", examples=2)]))
