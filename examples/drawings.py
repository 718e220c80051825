"""A task whose answers are drawings: what to draw, in words; the answer is SVG.

    shoal validate --task examples/drawings.py:Drawings
    shoal run --task examples/drawings.py:Drawings --model smollm2 --partial-credit true

    task = Drawings(shapes=2)
    task.question(7, 0).text        # "Draw a red circle at the top left and a blue square at the bottom, ..."
    task.score(question.id, [task.answer(question.id)])       # [1.0]

A drawing is right if each shape that was asked for is there in its colour and at its place, and nothing else. It is
judged by its points, not by its text, so that there are many right answers; everything is counted with room to spare,
so that a drawing that a person calls right is right. `shoal_extras.drawings` reads a stranger's SVG as a few plain
shapes, and resvg (`pip install 'shoal[drawings]'`) draws these: a renderer without scripts.
"""

import importlib.metadata
import io
from collections.abc import Sequence
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
import resvg_py
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin  # noqa: F401 (within the guard nothing can be imported)

from shoal.rollout import Message, Question, QuestionId, hash_of
from shoal.tasks.task import Failed
from shoal_extras.drawings import Drawing, NoDrawingError, read_svg

PIXELS: Final = 96
"""Points of a side. P: a row or a column, C: red, green, blue."""
RULES_VERSION: Final = 3
"""Another one whenever a drawing may get another score."""
COLOURS: Final = {
    "red": (255, 0, 0),
    "green": (0, 128, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "purple": (128, 0, 128),
    "orange": (255, 165, 0),
    "black": (0, 0, 0),
}
SHAPES: Final = ("circle", "square", "triangle")
PLACES: Final = {
    (0, 0): "at the top left",
    (0, 1): "at the top",
    (0, 2): "at the top right",
    (1, 0): "at the left",
    (1, 1): "in the middle",
    (1, 2): "at the right",
    (2, 0): "at the bottom left",
    (2, 1): "at the bottom",
    (2, 2): "at the bottom right",
}
"""Row and column of a third of the canvas, in words."""
CENTRES: Final = (6, 16, 26)
"""Of the thirds, where the question's own drawing has its shapes."""
NEAR: Final = 90.0
"""Distance of a point's colour from the one that it counts as, at most."""
SMALLEST, LARGEST = 1 / 12, 1 / 2
"""Width and height of a shape, in widths of the canvas."""
LENGTHY: Final = 1.4
"""Height to width, or width to height, of a shape at most."""
ALIKE: Final = 0.8
"""Overlap of a shape's points with those of its form, by the union."""
STRAY: Final = 0.01
"""Share of the canvas that may have other colours."""
PART: Final = 0.3
"""For each of colour, place and form."""
SIDE: Final = 24
"""Points of a side when forms are compared."""


class Wanted(NamedTuple):
    """A shape that was asked for."""

    colour: str
    shape: str
    place: tuple[int, int]
    """Row and column of a third of the canvas."""

    def words(self) -> str:
        return f"{'an' if self.colour == 'orange' else 'a'} {self.colour} {self.shape} {PLACES[self.place]}"

    def svg(self) -> str:
        """It, as the question's own drawing has it."""
        y, x = (CENTRES[third] for third in self.place)
        fill = f'fill="{self.colour}"'
        match self.shape:
            case "circle":
                return f'<circle cx="{x}" cy="{y}" r="4" {fill}/>'
            case "square":
                return f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8" {fill}/>'
        return f'<polygon points="{x - 4},{y + 4} {x + 4},{y + 4} {x},{y - 4}" {fill}/>'


def credit(wanted: Sequence[Wanted], points_PPC: NDArray[np.uint8]) -> float:
    """1 for all that was asked for and nothing else; otherwise up to 0.9 by parts. `wanted` have different colours."""
    names = ["white", *COLOURS]
    colours_NC = np.array([(255, 255, 255), *COLOURS.values()], dtype=np.float64)
    distance_PPN = np.linalg.norm(points_PPC[:, :, None, :].astype(np.float64) - colours_NC, axis=-1)
    nearest_PP = np.where(distance_PPN.min(axis=-1) <= NEAR, distance_PPN.argmin(axis=-1), -1)
    parts = [_parts(each, nearest_PP == names.index(each.colour)) for each in wanted]
    known = [0, *(names.index(each.colour) for each in wanted)]
    stray = float((~np.isin(nearest_PP, known)).mean())
    if all(count == 3 for count in parts) and stray <= STRAY:
        return 1.0
    return PART * sum(parts) / len(parts)


def _parts(wanted: Wanted, mask_PP: NDArray[np.bool_]) -> int:
    """How many of colour, place and form are right, of the points in the shape's colour."""
    rows, columns = np.nonzero(mask_PP)
    side = mask_PP.shape[0]
    if len(rows) < (SMALLEST * side) ** 2 / 2:
        return 0
    middle = (rows.min() + rows.max() + 1) / 2, (columns.min() + columns.max() + 1) / 2
    place = tuple(min(2, int(3 * each / side)) for each in middle)
    height, width = rows.max() - rows.min() + 1, columns.max() - columns.min() + 1
    whole = mask_PP[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    sized = all(SMALLEST * side <= each <= LARGEST * side for each in (height, width))
    square = max(height, width) <= LENGTHY * min(height, width)
    return 1 + (place == wanted.place) + (sized and square and _form(whole) == wanted.shape)


def _form(mask: NDArray[np.bool_]) -> str:
    """The form that a mask, cut to its edges, resembles most; empty if none."""
    at = ((np.arange(SIDE) + 0.5) / SIDE * np.array(mask.shape)[:, None]).astype(int)
    small_SS = mask[np.ix_(at[0], at[1])]
    found = [
        (float((small_SS & form_SS).sum() / (small_SS | form_SS).sum()), name)
        for name, forms in _FORMS.items()
        for form_SS in forms
    ]
    best, name = max(found)
    return name if best >= ALIKE else ""


def _forms() -> dict[str, list[NDArray[np.bool_]]]:
    """Each shape as points of its own box; a triangle with any side down, and with a right angle at any corner."""
    row_SS, column_SS = np.meshgrid(*2 * [(np.arange(SIDE) + 0.5) / SIDE], indexing="ij")
    upright_SS = np.abs(column_SS - 0.5) <= row_SS / 2
    corner_SS = column_SS <= row_SS
    turned = [np.rot90(form, times) for form in (upright_SS, corner_SS) for times in range(4)]
    circle_SS = (row_SS - 0.5) ** 2 + (column_SS - 0.5) ** 2 <= 0.25
    return {"circle": [circle_SS], "square": [np.ones((SIDE, SIDE), bool)], "triangle": turned}


_FORMS: Final = _forms()


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
