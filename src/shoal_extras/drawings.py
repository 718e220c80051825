"""A stranger's SVG as a few plain shapes, and nothing else.

    shapes = read_svg('<svg viewBox="0 0 32 32"><circle cx="8" cy="8" r="4" fill="red"/><script>...</script></svg>')
    shapes.text()       # '<svg ... ><circle cx="8" cy="8" r="4" fill="red"/></svg>'

Six elements and their geometry, colours and three transforms are read; all else is left out: styles, text, references,
filters, patterns, scripts, events, entities. The text is made anew of what was read, so that nothing that a stranger
wrote reaches a renderer or a browser but numbers and the names of colours. Sizes, numbers and counts are bounded.
"""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple
from xml.etree.ElementTree import ParseError, XMLPullParser

LONGEST: Final = 4000
"""Characters of a drawing."""
MOST_SHAPES: Final = 32
DEEPEST: Final = 8
"""Groups within each other."""
LONGEST_VALUE: Final = 400
"""Characters of an attribute."""
LARGEST: Final = 9999.0
"""Of a number."""
LARGEST_SCALE: Final = 100.0
"""Of all transforms of a shape together: a curve that is larger takes a renderer seconds."""
CANVAS: Final = (0.0, 0.0, 32.0, 32.0)
"""Left, top, width and height, where a drawing says nothing else."""

_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)"
_ONE: Final = re.compile(rf"\s*({_NUMBER})\s*(?:px)?\s*", re.ASCII)
_SEVERAL: Final = re.compile(rf"\s*{_NUMBER}(?:[\s,]+{_NUMBER})*\s*", re.ASCII)
_PATH: Final = re.compile(r"[MmLlHhVvCcSsQqTtAaZz\d\s,.+-]*", re.ASCII)
_TURN: Final = rf"(?:translate|scale|rotate)\(\s*{_NUMBER}(?:[\s,]+{_NUMBER}){{0,2}}\s*\)"
_TURNED: Final = re.compile(rf"\s*{_TURN}(?:\s*{_TURN}){{0,3}}\s*", re.ASCII)
_SCALE: Final = re.compile(rf"scale\(\s*({_NUMBER})(?:[\s,]+({_NUMBER}))?", re.ASCII)
_RGB: Final = r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)"
_COLOUR: Final = re.compile(rf"\s*(?:[a-zA-Z]{{3,20}}|#(?:[0-9a-fA-F]{{3}}){{1,2}}|{_RGB})\s*", re.ASCII)
_GEOMETRY: Final[dict[str, Mapping[str, re.Pattern[str]]]] = {
    "rect": dict.fromkeys(("x", "y", "width", "height", "rx", "ry"), _ONE),
    "circle": dict.fromkeys(("cx", "cy", "r"), _ONE),
    "ellipse": dict.fromkeys(("cx", "cy", "rx", "ry"), _ONE),
    "line": dict.fromkeys(("x1", "y1", "x2", "y2"), _ONE),
    "polygon": {"points": _SEVERAL},
    "path": {"d": _PATH},
}
_LOOKS: Final[Mapping[str, re.Pattern[str]]] = {
    "fill": _COLOUR,
    "stroke": _COLOUR,
    "stroke-width": _ONE,
    "opacity": _ONE,
}
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_GROUPS: Final = ("svg", "g")


class NoDrawingError(ValueError):
    """The text has no SVG that can be read."""


class Shape(NamedTuple):
    """One element with what it has of its own and of its groups."""

    name: str
    attributes: dict[str, str]

    def text(self) -> str:
        return " ".join(["<" + self.name, *(f'{key}="{value}"' for key, value in self.attributes.items())]) + "/>"


class Drawing(NamedTuple):
    """What was read."""

    view: tuple[float, float, float, float]
    shapes: tuple[Shape, ...]

    def text(self) -> str:
        """The drawing as SVG."""
        view = " ".join(f"{number:g}" for number in self.view)
        drawn = "".join(shape.text() for shape in self.shapes)
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}">{drawn}</svg>'


def read_svg(text: str) -> Drawing:
    """The first drawing in a text, which may say more before and after it, up to where it is no XML any more: it may
    lack its end. Raises `NoDrawingError`."""
    begin = text.find("<svg")
    if begin < 0:
        raise NoDrawingError("no <svg>")
    end = text.find("</svg>", begin)
    drawing = text[begin : end if end >= 0 else len(text)]
    if len(drawing) > LONGEST:
        raise NoDrawingError(f"more than {LONGEST} characters")
    parser: Any = XMLPullParser(("start", "end"))
    parser.feed(_COMMENT.sub("", drawing).partition("<!")[0])  # neither document types nor entities
    view, shapes = CANVAS, list[Shape]()
    groups: list[dict[str, str]] = []
    left_out = 0  # open elements of no interest, with all that is in them
    with suppress(ParseError):
        for event, element in parser.read_events():
            tag, given = element.tag.rpartition("}")[2], _styled(element.attrib)
            if left_out or tag not in (*_GROUPS, *_GEOMETRY):
                left_out += 1 if event == "start" else -1
            elif tag in _GEOMETRY and event == "start":
                shapes.append(Shape(tag, {**_read(given, _GEOMETRY[tag]), **_looks(given, groups)}))
            elif event == "start":
                view = view if groups else _view(given)
                groups.append(_looks(given if tag == "g" else {**given, "transform": ""}, groups))
            elif tag in _GROUPS:
                groups.pop()
            if len(shapes) > MOST_SHAPES or len(groups) > DEEPEST:
                raise NoDrawingError(f"more than {MOST_SHAPES} shapes, or {DEEPEST} groups within each other")
    return Drawing(view, tuple(shapes))


def plain_svg(text: str) -> str | None:
    """The first drawing in a text as plain shapes, for a page; None where there is none."""
    try:
        drawing = read_svg(text)
    except NoDrawingError:
        return None
    return drawing.text() if drawing.shapes else None


def _looks(given: Mapping[str, str], groups: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Colours and transforms of an element, with those of its groups."""
    outer = groups[-1] if groups else {}
    looks = {**outer, **_read(given, _LOOKS)}
    if turned := _read(given, {"transform": _TURNED}):
        transform = f"{outer.get('transform', '')} {turned['transform']}".strip()
        if len(transform) <= LONGEST_VALUE and _scale(transform) <= LARGEST_SCALE:
            looks["transform"] = transform
    return looks


def _read(given: Mapping[str, str], wanted: Mapping[str, re.Pattern[str]]) -> dict[str, str]:
    """Those of the attributes that are wanted and have the form that they should."""
    return {
        name: value.strip()
        for name, form in wanted.items()
        if 0 < len(value := given.get(name, "")) <= LONGEST_VALUE
        and form.fullmatch(value)
        and (form is _COLOUR or all(abs(float(number)) <= LARGEST for number in re.findall(_NUMBER, value)))
    }


def _scale(transform: str) -> float:
    """What a transform enlarges by, at most."""
    return math.prod(max(abs(float(number)) for number in pair if number) for pair in _SCALE.findall(transform))


def _styled(given: Mapping[str, str]) -> dict[str, str]:
    """The attributes with what a `style` says."""
    pairs = (part.partition(":") for part in given.get("style", "")[:LONGEST_VALUE].split(";"))
    return {**given, **{name.strip(): value.strip() for name, _, value in pairs}}


def _view(given: Mapping[str, str]) -> tuple[float, float, float, float]:
    """The canvas of a drawing."""
    said = _read(given, {"viewBox": _SEVERAL, "width": _ONE, "height": _ONE})
    numbers = [float(number) for number in re.findall(_NUMBER, said.get("viewBox", ""))]
    if len(numbers) != 4 and {"width", "height"} <= said.keys():
        numbers = [0.0, 0.0, *(float(re.findall(_NUMBER, said[side])[0]) for side in ("width", "height"))]
    if len(numbers) != 4 or not (numbers[2] >= 1 and numbers[3] >= 1):
        return CANVAS
    left, top, width, height = numbers
    return left, top, width, height
