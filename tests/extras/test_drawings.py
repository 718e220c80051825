"""Answers that are drawings: what is right, and that a stranger's SVG does nothing."""

from __future__ import annotations

import re
import time
from xml.parsers import expat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.tasks import TasksConfig
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal_extras.drawings import LONGEST, MOST_SHAPES, NoDrawingError, read_svg

pytest.importorskip("resvg_py")

import drawings
from drawings import COLOURS, PIXELS, PLACES, SHAPES, Drawings, Wanted, credit, render


def svg(inside: str, view: str = 'viewBox="0 0 32 32"') -> str:
    return f"<svg {view}>{inside}</svg>"


def drawn(inside: str, *wanted: Wanted) -> float:
    return credit(wanted, render(read_svg(svg(inside))))


RED_CIRCLE = Wanted("red", "circle", (0, 0))


@pytest.mark.parametrize("shapes", [1, 2, 3])
def test_the_question_s_own_drawing_is_right(shapes: int) -> None:
    task = Drawings(shapes)
    for seed in range(30):
        question = task.question(seed, 0)
        assert task.score(question.id, [task.answer(question.id)]) == [1.0], question.text
        assert question == task.question(seed, 0)


def test_every_shape_is_told_from_every_other() -> None:
    for colour, place in [*((colour, (1, 1)) for colour in COLOURS), *(("blue", place) for place in PLACES)]:
        for shape in SHAPES:
            points = render(read_svg(svg(Wanted(colour, shape, place).svg())))
            right = [each for each in SHAPES if credit([Wanted(colour, each, place)], points) == 1.0]
            assert right == [shape]


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ('<circle cx="6" cy="6" r="4" fill="red"/>', 1.0),
        ('<circle cx="5" cy="7" r="3" fill="#f00"/>', 1.0),
        ('<ellipse cx="6" cy="6" rx="4" ry="3.5" style="fill: rgb(250, 10, 10)"/>', 1.0),
        ('<g fill="red"><g transform="translate(2 2)"><circle cx="4" cy="4" r="4"/></g></g>', 1.0),
        ('<path d="M2 6a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z" fill="red"/>', 1.0),
        ('<rect width="32" height="32" fill="white"/><circle cx="6" cy="6" r="4" fill="red"/>', 1.0),
        ('<circle cx="6" cy="6" r="4" fill="red"/><text x="1" y="9">red</text>', 1.0),  # text is left out
        ('<circle cx="26" cy="6" r="4" fill="red"/>', 0.6),  # elsewhere
        ('<rect x="2" y="2" width="8" height="8" fill="red"/>', 0.6),  # another form
        ('<circle cx="6" cy="6" r="4" fill="blue"/>', 0.0),  # another colour
        ('<circle cx="6" cy="6" r="1" fill="red"/>', 0.0),  # too small to be seen
        ('<circle cx="6" cy="6" r="14" fill="red"/>', 0.6),  # most of the canvas
        ('<circle cx="6" cy="6" r="4" fill="red"/><circle cx="26" cy="26" r="4" fill="blue"/>', 0.9),  # and more
        ('<circle cx="6" cy="6" r="4" fill="red"/><circle cx="26" cy="6" r="4" fill="red"/>', 0.3),  # two of them
        ('<rect width="32" height="32" fill="black"/><circle cx="6" cy="6" r="4" fill="red"/>', 0.9),
        ("", 0.0),
        ('<g fill="red"><circle cx="6" cy="6" r="4">', 1.0),  # ends are missing
        ('<circle cx="6" cy="6" r="4" fill="red"/><rect fill="red" fill="blue"/>', 1.0),  # up to what is no XML
        ('<defs><circle cx="6" cy="6" r="4" fill="red"/></defs>', 0.0),  # not drawn
        ('<!-- <circle cx="26" cy="6" r="4" fill="blue"/> --><circle cx="6" cy="6" r="4" fill="red"/>', 1.0),
        ('<title>red</title><circle cx="6" cy="6" r="4" fill="red"/>', 1.0),
    ],
)
def test_colour_place_and_form_count(inside: str, expected: float) -> None:
    assert drawn(inside, RED_CIRCLE) == pytest.approx(expected)


def test_another_canvas_is_scaled() -> None:
    big = svg('<circle cx="60" cy="60" r="40" fill="red"/>', 'width="320" height="320"')
    assert credit([RED_CIRCLE], render(read_svg(f"Here it is:\n```svg\n{big}\n```"))) == 1.0


NO_DRAWINGS = {
    "nothing": "",
    "words": "a red circle",
    "long": svg(" " * LONGEST),
    "many": svg('<rect width="1" height="1"/>' * (MOST_SHAPES + 1)),
    "deep": svg("<g>" * 20 + "</g>" * 20),
}


@pytest.mark.parametrize("kind", NO_DRAWINGS)
def test_what_is_no_drawing(kind: str) -> None:
    with pytest.raises(NoDrawingError):
        read_svg(NO_DRAWINGS[kind])


HOSTILE = {
    "script": "<script>alert(1)</script>",
    "event": '<circle cx="6" cy="6" r="4" fill="red" onload="alert(1)" onclick="alert(1)"/>',
    "foreign": "<foreignObject><iframe src='javascript:alert(1)'/></foreignObject>",
    "image of a file": '<image href="file:///etc/passwd" width="32" height="32"/>',
    "image of the net": '<image href="http://127.0.0.1:1/x.png" width="32" height="32"/>',
    "image in itself": '<image href="data:image/svg+xml;base64,PHN2Zy8+" width="32" height="32"/>',
    "link": '<a href="javascript:alert(1)"><circle r="4"/></a>',
    "use": '<defs><circle id="a" r="4"/></defs>' + '<use href="#a"/>' * 50,
    "uses of uses": '<g id="a"><use href="#b"/></g><g id="b"><use href="#a"/></g>',
    "style sheet": "<style>@import url(http://127.0.0.1:1/x.css); circle { fill: url(#p) }</style>",
    "style": '<circle r="4" style="fill: url(http://127.0.0.1:1/x); background: url(x); --a: b"/>',
    "fill by reference": '<circle r="4" fill="url(#p)"/>',
    "pattern": '<pattern id="p" width="0.0001" height="0.0001"><rect width="1"/></pattern><rect fill="url(#p)"/>',
    "filter": '<filter id="f"><feGaussianBlur stdDeviation="9999"/></filter><rect filter="url(#f)" width="9"/>',
    "dashes": '<path d="M0 0H9999" stroke="red" stroke-dasharray="0.0001" stroke-width="9"/>',
    "huge numbers": '<circle cx="1e300" cy="99999999999" r="4" fill="red"/>',
    "not a number": '<circle cx="NaN" cy="inf" r="-4" fill="red"/>',
    "huge turn": '<g transform="scale(99999999)"><circle r="4"/></g>',
    "turns that grow": '<g transform="scale(99)"><g transform="rotate(45) scale(99, 0.01)"><path d="M0 0'
    + " C 9 0 0 9 9 9" * 20
    + '" stroke="red" stroke-width="0.01"/></g></g>',
    "turns": '<g transform="' + "rotate(1)" * 40 + '"><circle r="4"/></g>',
    "animation": '<circle r="4"><animate attributeName="r" to="9999" dur="1s"/></circle>',
    "an entity": "&lol;",
    "a document type": '<!DOCTYPE svg [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>&b;',
    "unclosed": '<script><circle r="4"/><text>' + "<g" * 9,
    "text": '<text font-size="9999">' + "W" * 200 + "</text>",
    "switch": '<switch><circle r="4" systemLanguage="en"/></switch>',
    "mask": '<mask id="m"><rect width="9" height="9"/></mask><rect mask="url(#m)" width="9" height="9"/>',
    "namespace": '<x:script xmlns:x="http://www.w3.org/1999/xhtml">alert(1)</x:script>',
    "processing": "<?xml-stylesheet href='http://127.0.0.1:1/x.css'?>",
    "cdata": "<![CDATA[<script>alert(1)</script>]]>",
    "quotes": "<circle r='4' fill='red\"/&gt;&lt;script&gt;'/>",
    "arcs": '<path d="' + "a9999 .0001 0 1 0 9999 1" * 14 + '" stroke="red" stroke-width="9999"/>',
    "many wide shapes": '<ellipse rx="9999" ry="9999" stroke-width="9999" stroke="red"/>' * MOST_SHAPES,
}
NAMES = "x|y|width|height|rx|ry|cx|cy|r|x1|y1|x2|y2|points|d|fill|stroke|stroke-width|opacity|transform"
PLAIN = re.compile(
    r'<svg xmlns="http://www\.w3\.org/2000/svg" viewBox="[-\d. e+]+">'
    rf'(<(rect|circle|ellipse|line|polygon|path)( ({NAMES})="[-\w.,+# ()\s]*")*/>)*</svg>'
)


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_drawings_do_nothing(kind: str) -> None:
    began = time.process_time()
    try:
        plain = read_svg(svg(HOSTILE[kind])).text()
    except NoDrawingError:
        return
    assert PLAIN.fullmatch(plain), plain
    for word in ("script", "href", "url", "on", "style", "image", "use", "data"):
        assert not re.search(rf"\b{word}\w*=|<{word}\b|{word}\(", plain)
    assert render(read_svg(plain)).shape == (PIXELS, PIXELS, 3)
    assert time.process_time() - began < 5  # some take 0.1 s


def test_turns_enlarge_a_hundred_times_at_most() -> None:
    drawing = read_svg(
        svg('<g transform="scale(10)"><rect transform="scale(-9)"/><rect transform="scale(0, -11)"/></g>')
    )
    assert [shape.attributes["transform"] for shape in drawing.shapes] == ["scale(10) scale(-9)", "scale(10)"]


PIECES = [
    *HOSTILE.values(),
    '<circle cx="1" cy="2" r="3" fill="red"/>',
    "<g>",
    "</g>",
    "&lt;",
    '"',
    "<",
    "/>",
    " x='1'",
    "<!",
    "<![",
    "<!--",
    "-->",
    "<?",
    "]]>",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=8))
def test_whatever_is_read_is_plain_and_reads_as_the_same(pieces: list[str]) -> None:
    try:
        drawing = read_svg(svg("".join(pieces)))
    except NoDrawingError:
        return
    plain = drawing.text()
    assert PLAIN.fullmatch(plain)
    expat.ParserCreate().Parse(plain, True)
    if len(plain) <= LONGEST:
        assert read_svg(plain) == drawing


@pytest.mark.parametrize("text", ["<svg>" + "<a " * 1300, "<svg>" + "<a x='" * 660, "<svg>" + "<b>" * 1300])
def test_tags_without_an_end_are_no_drawing(text: str) -> None:
    began = time.process_time()
    assert not read_svg(text).shapes
    assert time.process_time() - began < 1  # a millisecond


def test_in_the_guarded_worker() -> None:
    config = TasksConfig.model_validate(
        {"sources": [{"name": f"{drawings.__file__}:Drawings", "parameters": {"shapes": 2}}]}
    )
    tasks = Tasks(config)
    question = tasks.draw(1, "k")[0]
    right = Drawings(2).answer(question.id)
    with Verifier(config) as verifier:
        texts = [right, "nothing", *(svg(each) for each in HOSTILE.values()), right]
        [scores] = verifier.score([(question.id, texts)])
    assert scores[0] == scores[-1] == 1.0
    assert max(scores[1:-1]) == 0.0
    assert set(verifier.failures) <= {"no drawing"}


def test_drawings_that_ignore_the_question_are_seldom_right() -> None:
    task = Drawings()
    ids = [task.question(seed, 0).id for seed in range(150)]
    answers = [task.answer(id) for id in ids]
    assert np.mean([task.score(id, [answers[at - 1]]) == [1.0] for at, id in enumerate(ids)]) < 0.03
    best = max(answers.count(answer) for answer in answers)
    assert best / len(answers) < 0.03
