"""The page for people looks as it did: screenshots of its views beside kept ones.

    SHOAL_PICTURES=1 pytest -m '' tests/web/integration/test_human_pictures.py     # keeps today's, to be looked at

The page gets made-up answers of its API, and its text is drawn in boxes, so that neither a swarm nor a machine's fonts
matter. What may differ is how a browser smooths edges.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boxes_font import boxes_style

import shoal_web.human
import shoal_web.serving

api = pytest.importorskip("playwright.sync_api")
image = pytest.importorskip("PIL.Image")
chops = pytest.importorskip("PIL.ImageChops")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="chromium is absent: apt-get install chromium"),
]

KEPT = Path(__file__).parent / "pictures"
COARSE = 4
"""Both pictures are made smaller by this before they are compared: smoothed edges vanish."""
STEP = 24
"""Of 255, by which a colour may differ."""
SHARE = 0.002
"""Of a picture's points that may differ by more."""
NOW = 1_750_000_000
DESKTOP: dict[str, Any] = {"viewport": {"width": 1180, "height": 760}, "color_scheme": "light"}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 760}, "color_scheme": "dark", "has_touch": True}
SCREENS = {"desktop": DESKTOP, "phone": PHONE}

NAMES = ("amber-otter-03af", "quiet-heron-91c2")
TASKS = [
    {"label": "spell_backward", "others": 0.4},
    {"label": "chain_sum", "others": 0.9},
]
STATE = {
    "word": "w", "name": "brave-lark-77d0", "id": "ab" * 32, "kind": "human", "swarm": "reef", "private": False,
    "links": 2, "peers": 2, "silo": False, "note": "", "tasks": TASKS, "most": 8, "longest": 256,
    "totals": {"answered": 12, "reward": 9.0, "taught": 4, "learners": 2},
}  # fmt: skip
QUESTION = {"round": 9, "task": "spell_backward", "text": "Spell this word backward: lantern"}


def entry(
    round: int, answers: list[str], rewards: list[float], right: str | None = "nretnal", learner: int = 0
) -> dict[str, Any]:
    about = {"answers": answers, "rewards": rewards, "answered": NOW - 60, "right": right}
    said = {"node": f"{learner}" * 64, "name": NAMES[learner % 2], "at": 40 + learner, "time": NOW - 300 * learner}
    return {**QUESTION, "round": round, **about, "learners": [said] if learner else []}


WRONG = entry(9, ["nretnel"], [0.0])
JOURNAL = [entry(8, ["nretnal", "lantern"], [1.0, 0.0], learner=1), entry(7, ["no idea"], [0.0], learner=2)]
SAID: dict[str, Any] = {
    "state": STATE,
    "question": {"questions": [{**QUESTION, "prompt": [], "marks": None, "longest": 256}]},
    "answer": WRONG,
    "journal": {"entries": JOURNAL},
}


def serve(route: Any) -> None:
    """Files from their folders, and what the API would say."""
    path = route.request.url.split("shoal.test", 1)[1].partition("?")[0]
    if path.startswith("/api/"):
        route.fulfill(body=json.dumps(SAID[path.removeprefix("/api/")]), content_type="application/json")
        return
    folders = [Path(room.__file__ or "").parent / "static" for room in (shoal_web.human, shoal_web.serving)]
    name = "index.html" if path == "/" else "enter.html" if path == "/enter" else path.removeprefix("/static/")
    route.fulfill(path=next(folder / name for folder in folders if (folder / name).exists()))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--force-device-scale-factor=1"])
        yield started
        started.close()


def answered(tab: Any) -> None:
    tab.fill("textarea", "nretnel")
    tab.click("text=Send")
    tab.wait_for_selector(".result")


def several(tab: Any) -> None:
    tab.click("text=+ another answer")
    tab.locator("textarea").nth(0).fill("nretnal")


VIEWS: dict[str, tuple[str, str, Any]] = {
    "answer": ("/", "textarea", None),
    "several": ("/", "textarea", several),
    "answered": ("/", "textarea", answered),
    "journal": ("/#journal", ".entries", None),
    "enter": ("/enter", "form", None),
}
"""Where each view is, what has to be there, and what is done then."""


def taken(browser: Any, screen: dict[str, Any], view: str, style: Any = serve) -> Any:
    """A picture of a view. `style`: serves the style sheet."""
    place, ready, act = VIEWS[view]
    context = browser.new_context(**screen, reduced_motion="reduce", locale="en")
    try:
        tab = context.new_page()
        tab.clock.set_fixed_time(NOW * 1000)
        tab.route("http://shoal.test/**", serve)
        tab.route("http://shoal.test/static/human.css", style)
        tab.goto(f"http://shoal.test{place}")
        tab.add_style_tag(content=boxes_style())
        tab.wait_for_selector(ready)
        if view != "enter":
            tab.wait_for_selector("#feed li")
        tab.evaluate("document.fonts.ready")
        if act:
            act(tab)
        tab.mouse.move(0, 0)
        return image.open(io.BytesIO(tab.screenshot(full_page=True, animations="disabled"))).convert("RGB")
    finally:
        context.close()


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_looks_as_it_did(view: str, screen: str, browser: Any) -> None:
    shown = taken(browser, SCREENS[screen], view)
    file = KEPT / f"human-{view}-{screen}.png"
    if os.environ.get("SHOAL_PICTURES"):
        KEPT.mkdir(exist_ok=True)
        shown.quantize(128).save(file, optimize=True)
    kept = image.open(file).convert("RGB")
    assert shown.size == kept.size
    assert differing(shown, kept) <= SHARE


def test_a_lost_brace_is_seen(browser: Any) -> None:
    """What the pictures are for: a style sheet that has lost one rule is found."""

    def broken(route: Any) -> None:
        css = (Path(shoal_web.human.__file__ or "").parent / "static" / "human.css").read_text()
        route.fulfill(body=css.replace("\ntextarea {", "\ntextarea", 1), content_type="text/css")

    shown = taken(browser, DESKTOP, "answer", broken)
    kept = image.open(KEPT / "human-answer-desktop.png").convert("RGB")
    assert shown.size != kept.size or differing(shown, kept) > SHARE


def differing(one: Any, other: Any) -> float:
    """The share of points that differ, after both pictures are made smaller."""
    small = [
        picture.resize([max(1, side // COARSE) for side in picture.size], image.Resampling.BOX)
        for picture in (one, other)
    ]
    points = np.asarray(chops.difference(*small))
    return float((points.max(axis=2) > STEP).mean())
