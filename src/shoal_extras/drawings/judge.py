"""Whether a picture shows what was asked for: each shape's colour, place and form.

    credit([Wanted("red", "circle", (0, 0))], points_PPC)          # 1.0, or a part of it

Everything is counted in points, with room to spare, so that a drawing that a person calls right is right.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
