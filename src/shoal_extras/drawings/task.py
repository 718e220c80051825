"""The task `drawings`: what to draw, in words; the answer is SVG.

    task = Drawings(shapes=2)
    task.question(7, 0).text        # "Draw a red circle at the top left and a blue square at the bottom, ..."
    task.score(question.id, [task.answer(question.id)])       # [1.0]

A drawing is right if each shape that was asked for is there in its colour and at its place, and nothing else. It is
judged by its points, not by its text, so that there are many right answers. resvg draws it: a renderer of SVG without
scripts, which opens nothing by itself.
"""

import importlib.metadata
import io
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import numpy as np
import resvg_py
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin  # noqa: F401 (within the guard nothing can be imported)

from shoal.rollout import Message, Question, QuestionId, hash_of
from shoal.tasks.task import Failed
from shoal_extras.drawings.judge import COLOURS, PLACES, SHAPES, Wanted, credit
from shoal_extras.drawings.plain_svg import Drawing, NoDrawingError, read_svg

PIXELS: Final = 96
"""Points of a side. P: a row or a column, C: red, green, blue."""
RULES_VERSION: Final = 2
"""Another one whenever a drawing may get another score."""


def render(drawing: Drawing) -> NDArray[np.uint8]:
    """The points of a drawing on white, without smoothed edges. Raises `Failed` for what cannot be drawn."""
    options: Any = {"skip_system_fonts": True, "shape_rendering": "crisp_edges", "background": "#ffffff"}
    try:
        data = resvg_py.svg_to_bytes(svg_string=drawing.text(), width=PIXELS, height=PIXELS, **options)
    except ValueError as error:
        raise Failed("no drawing", str(error)) from None
    with Image.open(io.BytesIO(bytes(data)), formats=("PNG",)) as picture:
        points_PPC = np.asarray(picture.convert("RGB"))
    if points_PPC.shape != (PIXELS, PIXELS, 3):
        raise Failed("no drawing", f"a picture of {points_PPC.shape}")
    return points_PPC


class Drawings:
    """Draws shapes of a colour at a place. `shapes`: of each question, 1 to 3. Partial credit: 0.3 each for a shape's
    colour, its place and its form."""

    name = "drawings"
    version = "1"

    def __init__(self, shapes: int = 1) -> None:
        if not 1 <= shapes <= 3:
            raise ValueError(f"shapes is 1 to 3, not {shapes}")
        self.shapes = shapes
        rules = f"resvg {resvg_py.__resvg_version__}+{RULES_VERSION} of {importlib.metadata.version('resvg_py')}"
        self.config = hash_of({"rules": rules, "shapes": shapes})

    def question(self, seed: int, index: int) -> Question:
        wanted = " and ".join(map(Wanted.words, self._wanted(seed, index)))
        text = (
            f"Draw {wanted}, about 8 wide, on a white canvas of 32 by 32. "
            'Answer with SVG only, such as <svg viewBox="0 0 32 32">...</svg>.'
        )
        return Question(QuestionId(self.name, self.version, self.config, seed, index), (Message("user", text),))

    def answer(self, question: QuestionId) -> str:
        drawn = "".join(each.svg() for each in self._wanted(question.seed, question.index))
        return f'<svg viewBox="0 0 32 32">{drawn}</svg>'

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        wanted, scores = self._wanted(question.seed, question.index), []
        for answer in answers:
            try:
                scores.append(credit(wanted, render(read_svg(answer))))
            except NoDrawingError as error:
                raise Failed("no drawing", str(error)) from None
        return scores

    def _wanted(self, seed: int, index: int) -> list[Wanted]:
        random = Random(f"{seed} {index}")
        colours = random.sample(list(COLOURS), self.shapes)
        places = random.sample(list(PLACES), self.shapes)
        return [Wanted(colour, random.choice(SHAPES), place) for colour, place in zip(colours, places, strict=True)]
