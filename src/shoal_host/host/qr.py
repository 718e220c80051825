"""A QR code for a terminal: two rows of its squares in each line of text, dark on light, with the margin it needs."""

from __future__ import annotations

from typing import Final

import segno
from rich.text import Text

STYLE: Final = "black on white"
MARGIN: Final = 2
"""Squares around it. Four are the standard; two are enough for cameras and let it fit 80 columns."""
HALVES: Final = {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}


def code_of(text: str) -> segno.QRCode:
    """The smallest QR code of `text`."""
    return segno.make_qr(text, error="l", boost_error=False)


def lines(code: segno.QRCode) -> list[Text]:
    """What to print."""
    rows = [[int(square > 0) for square in row] for row in code.matrix_iter(border=MARGIN)]
    if len(rows) % 2:
        rows.append([0] * len(rows[0]))
    return [
        Text("".join(HALVES[pair] for pair in zip(top, bottom, strict=True)), STYLE, no_wrap=True)
        for top, bottom in zip(rows[::2], rows[1::2], strict=True)
    ]
