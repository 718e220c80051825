"""Questions whose answers are drawings: what to draw, in words; the answer is SVG.

    task = Drawings(shapes=2)
    task.question(7, 0).text        # "Draw a red circle at the top left and a blue square at the bottom, ..."
    task.score(question.id, [task.answer(question.id)])       # [1.0]

A drawing is right if each shape that was asked for is there in its colour and at its place, and nothing else. It is
judged by its points, not by its text, so that there are many right answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from shoal.rollout import Message, Question, QuestionId, hash_of
from shoal.tasks.task import Failed
from shoal_extras.drawings.judge import COLOURS, PLACES, SHAPES, Wanted, credit
from shoal_extras.drawings.picture import load, render
from shoal_extras.drawings.plain_svg import NoDrawingError, read_svg

MOST: Final = 3
"""Shapes of a question."""


class Drawings:
    """Draws shapes of a colour at a place. `shapes`: of each question, 1 to 3. Partial credit: 0.3 each for a shape's
    colour, its place and its form."""

    name = "drawings"
    version = "1"

    def __init__(self, shapes: int = 1) -> None:
        """Raises `UserError` without resvg."""
        if not 1 <= shapes <= MOST:
            raise ValueError(f"shapes is 1 to {MOST}, not {shapes}")
        self.shapes = shapes
        self.config = hash_of({"rules": load(), "shapes": shapes})

    def question(self, seed: int, index: int) -> Question:
        wanted = " and ".join(map(_in_words, self._wanted(seed, index)))
        text = (
            f"Draw {wanted}, about 8 wide, on a white canvas of 32 by 32. "
            'Answer with SVG only, such as <svg viewBox="0 0 32 32">...</svg>.'
        )
        return Question(QuestionId(self.name, self.version, self.config, seed, index), (Message("user", text),))

    def answer(self, question: QuestionId) -> str:
        drawn = "".join(each.svg() for each in self._wanted(question.seed, question.index))
        return f'<svg viewBox="0 0 32 32">{drawn}</svg>'

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        wanted = self._wanted(question.seed, question.index)
        return [_score(wanted, answer) for answer in answers]

    def _wanted(self, seed: int, index: int) -> list[Wanted]:
        random = Random(f"{seed} {index}")
        colours = random.sample(list(COLOURS), self.shapes)
        places = random.sample(list(PLACES), self.shapes)
        return [Wanted(colour, random.choice(SHAPES), place) for colour, place in zip(colours, places, strict=True)]


def _in_words(wanted: Wanted) -> str:
    article = "an" if wanted.colour == "orange" else "a"
    return f"{article} {wanted.colour} {wanted.shape} {PLACES[wanted.place]}"


def _score(wanted: Sequence[Wanted], answer: str) -> float:
    try:
        drawing = read_svg(answer)
    except NoDrawingError as error:
        raise Failed("no drawing", str(error)) from None
    return credit(wanted, render(drawing))
