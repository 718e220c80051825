"""Questions about small pictures: count, name a colour or a shape, read a number, compare bars.

    question = CountDots().question(seed=7, index=0)
    question.text, question.pictures[0].width          # "How many dots are there?", 32

Only the question's identity travels. Each node draws the picture again, and the question's hash covers its pixels.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Final

from shoal.rollout import Message, Question, QuestionId, hash_of
from shoal_extras.pictures.canvas import COLOURS, SHAPES, Canvas

SIZE: Final = 32
"""Pixels in a row, and in a column."""
CELL: Final = SIZE // 2
"""A picture has four cells. A shape or digit is in one of them."""
MOST_DOTS: Final = 9
DOT_CELL: Final = SIZE // 4
BARS: Final = 2


class PictureTask(ABC):
    """Questions with one picture each, answered by one word or number."""

    name: str
    version = "1"

    def __init__(self) -> None:
        self.config = hash_of({"size": SIZE})

    @abstractmethod
    def draw(self, chance: Random, canvas: Canvas) -> tuple[str, str]:
        """Draws the picture of a question. Returns its text and the right answer."""

    def question(self, seed: int, index: int) -> Question:
        canvas, text, _ = self._made(seed, index)
        id = QuestionId(self.name, self.version, self.config, seed, index)
        return Question(id, (Message("user", text),), pictures=(canvas.picture,))

    def answer(self, question: QuestionId) -> str:
        return self._made(question.seed, question.index)[2]

    def drawn(self, question: QuestionId) -> list[tuple[str, int, int]]:
        """What the picture shows, in words, with x and y: ("red ring", 8, 8)."""
        return self._made(question.seed, question.index)[0].drawn

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        right = self.answer(question)
        return [float(answer.strip().lower() == right) for answer in answers]

    @lru_cache(maxsize=256)  # noqa: B019 (a task lives as long as the program)
    def _made(self, seed: int, index: int) -> tuple[Canvas, str, str]:
        chance = Random(f"{self.name} {seed} {index}")
        dark = chance.randrange(50), chance.randrange(50), chance.randrange(50)  # which no shape is
        canvas = Canvas(SIZE, dark)
        return canvas, *self.draw(chance, canvas)


class CountDots(PictureTask):
    """How many dots are there?"""

    name = "count_dots"

    def draw(self, chance: Random, canvas: Canvas) -> tuple[str, str]:
        count = chance.randint(1, MOST_DOTS)
        colour = chance.choice(list(COLOURS))
        for cell in sorted(chance.sample(range((SIZE // DOT_CELL) ** 2), count)):
            row, column = divmod(cell, SIZE // DOT_CELL)
            x, y = (DOT_CELL * place + chance.randint(3, 4) for place in (column, row))
            canvas.shape("circle", colour, x, y, radius=chance.randint(2, 3))
        return "How many dots are there?", str(count)


class NameColour(PictureTask):
    """What colour is the shape?"""

    name = "name_colour"

    def draw(self, chance: Random, canvas: Canvas) -> tuple[str, str]:
        return "What colour is the shape?", _draw_shape(chance, canvas)[1]


class NameShape(PictureTask):
    """Which shape is this?"""

    name = "name_shape"

    def draw(self, chance: Random, canvas: Canvas) -> tuple[str, str]:
        return "Which shape is this?", _draw_shape(chance, canvas)[0]


class ReadNumber(PictureTask):
    """Which number is this?"""

    name = "read_number"

    def draw(self, chance: Random, canvas: Canvas) -> tuple[str, str]:
        number = str(chance.randint(10, 99))
        colour = chance.choice(list(COLOURS))
        row = chance.randrange(2)
        for column, digit in enumerate(number):
            x, y = CELL * column + chance.randint(2, 4), CELL * row + chance.randint(0, 2)
            canvas.digit(int(digit), colour, x, y, scale=2)
        return "Which number is this?", number


class CompareBars(PictureTask):
    """What colour is the taller bar?"""

    name = "compare_bars"

    def draw(self, chance: Random, canvas: Canvas) -> tuple[str, str]:
        colours = chance.sample(list(COLOURS), BARS)
        heights = [4 * step for step in chance.sample(range(1, SIZE // 4), BARS)]
        for place, (colour, height) in enumerate(zip(colours, heights, strict=True)):
            canvas.bar(colour, x=1 + SIZE // BARS * place, width=SIZE // BARS - 2, height=height)
        taller = chance.random() < 0.5
        wanted = max(heights) if taller else min(heights)
        return f"What colour is the {'taller' if taller else 'shorter'} bar?", colours[heights.index(wanted)]


def _draw_shape(chance: Random, canvas: Canvas) -> tuple[str, str]:
    """Draws a shape. Returns its kind and its colour."""
    kind, colour = chance.choice(SHAPES), chance.choice(list(COLOURS))
    x, y = (CELL * chance.randrange(SIZE // CELL) + chance.randint(7, 8) for _ in "xy")
    canvas.shape(kind, colour, x, y, radius=chance.randint(5, 6))
    return kind, colour
