"""A font whose every character is the same box, so that a page looks the same whatever fonts a machine has."""

from __future__ import annotations

import base64
import io
from functools import cache

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

SIZE = 1000
"""Units of the em square."""


@cache
def boxes_style() -> str:
    """A style sheet that sets all text of a page in boxes; spaces stay empty."""
    return (
        f"@font-face {{ font-family: Boxes; src: url(data:font/ttf;base64,{base64.b64encode(_font()).decode()}); }}"
        "* { font-family: Boxes !important; caret-color: transparent !important; }"
    )


def _font() -> bytes:
    pen = TTGlyphPen(None)
    pen.moveTo((50, 0))
    for corner in ((50, 550), (500, 550), (500, 0)):
        pen.lineTo(corner)
    pen.closePath()
    empty = TTGlyphPen(None).glyph()
    font = FontBuilder(SIZE, isTTF=True)
    font.setupGlyphOrder([".notdef", "space", "box"])
    signs = (*range(0x21, 0x7F), *range(0xA1, 0x600), *range(0x2010, 0x2028), *range(0x2030, 0x2800), 0xFFFD)
    font.setupCharacterMap({**dict.fromkeys(signs, "box"), 0x20: "space", 0xA0: "space"})
    font.setupGlyf({".notdef": empty, "space": empty, "box": pen.glyph()})
    font.setupHorizontalMetrics({".notdef": (550, 0), "space": (300, 0), "box": (550, 50)})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Boxes", "styleName": "Regular"})
    font.setupOS2(sTypoAscender=800, sTypoDescender=-200, usWinAscent=800, usWinDescent=200)
    font.setupPost()
    file = io.BytesIO()
    font.save(file)
    return file.getvalue()
