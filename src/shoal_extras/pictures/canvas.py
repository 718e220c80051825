"""Draws with integers alone, so that a picture has the same pixels on every machine.

canvas = Canvas(32, (0, 0, 40))
canvas.shape("circle", "red", x=8, y=8, radius=6)
canvas.digit(4, "white", x=2, y=16, scale=2)
canvas.picture                        # 32 x 32 pixels
canvas.drawn                          # [("red circle", 8, 8), ("white 4", 2, 16)]
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal.rollout import Picture

Colour = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""
COLOURS: Final[dict[str, Colour]] = {
    "red": (230, 30, 40),
    "green": (40, 170, 60),
    "blue": (50, 90, 240),
    "yellow": (250, 220, 40),
    "orange": (250, 130, 20),
    "purple": (150, 40, 190),
    "pink": (250, 150, 190),
    "brown": (130, 80, 40),
    "white": (255, 255, 255),
    "cyan": (60, 220, 230),
}
SHAPES: Final = ("circle", "square", "triangle", "cross", "ring", "diamond")
DIGITS: Final = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00110 01000 10000 11111",
    "11110 00001 00001 01110 00001 00001 11110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)
"""0 to 9 by rows from the top; 1 is a pixel of the digit."""


class Canvas:
    """A square picture in the making. What lies outside it is left out."""

    def __init__(self, size: int, background: Colour) -> None:
        self.pixels: NDArray[np.uint8] = np.full((size, size, 3), background, np.uint8)
        self.drawn: list[tuple[str, int, int]] = []
        """In words, with x and y, in the order of drawing."""
        self._y, self._x = np.mgrid[:size, :size]

    @property
    def picture(self) -> Picture:
        height, width, _ = self.pixels.shape
        return Picture(width, height, self.pixels.tobytes())

    def bar(self, colour: str, x: int, width: int, height: int) -> None:
        """A bar that stands on the lower edge, with its left side at `x`."""
        self._box(colour, x, len(self.pixels) - height, width, height)
        self.drawn.append((f"{colour} {height}", x, len(self.pixels) - 1))

    def shape(self, kind: str, colour: str, x: int, y: int, radius: int) -> None:
        """One of `SHAPES` around (x, y). Raises `ValueError` for another."""
        dx, dy = abs(self._x - x), self._y - y
        square = (dx <= radius) & (abs(dy) <= radius)
        distance = dx * dx + dy * dy
        circle = distance <= radius * radius + radius // 2
        inside = {
            "circle": circle,
            "square": square,
            "triangle": square & (2 * dx <= dy + radius),
            "cross": square & ((3 * dx <= radius) | (3 * abs(dy) <= radius)),
            "ring": circle & (4 * distance >= radius * radius + 2 * radius),
            "diamond": dx + abs(dy) <= radius,
        }
        if kind not in inside:
            raise ValueError(f"no shape {kind!r}")
        self.pixels[inside[kind]] = COLOURS[colour]
        self.drawn.append((f"{colour} {kind}", x, y))

    def digit(self, digit: int, colour: str, x: int, y: int, scale: int) -> None:
        """A digit with its top left corner at (x, y), of 5 x 7 squares of `scale` pixels."""
        for row, bits in enumerate(DIGITS[digit].split()):
            for column, bit in enumerate(bits):
                if bit == "1":
                    self._box(colour, x + column * scale, y + row * scale, scale, scale)
        self.drawn.append((f"{colour} {digit}", x, y))

    def _box(self, colour: str, x: int, y: int, width: int, height: int) -> None:
        """A filled rectangle with its top left corner at (x, y)."""
        self.pixels[max(0, y) : max(0, y + height), max(0, x) : max(0, x + width)] = COLOURS[colour]
