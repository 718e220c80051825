"""Hostile texts in the views that show what a model or a node says: Ask, and the page for people, in a real browser.

They are text there: nothing runs, no element comes of them, and nobody else is asked for anything."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from test_human_pictures import JOURNAL, NOW, QUESTION, SAID, STATE, WRONG, answered, serve
from test_watch_browser import CHROMIUM, PATIENCE, browser, expect, fits, go, opened, served, serving, until
from watched import HOSTILE, hostile_run

__all__ = ["browser"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(not CHROMIUM, reason="chromium is absent: apt-get install chromium"),
]
ALL = "\n".join(HOSTILE)
SHOWN = (
    "<img src=x onerror=window.hacked=1>",
    "{{constructor.constructor",
    "⟨202E⟩gnirts",
    "⟨0000⟩⟨0001⟩⟨001B⟩[31mred",
)
"""What a reader sees of `ALL`: markup and templates as they are, and what would steer a display by its number."""


def test_what_models_say_in_ask_is_text(browser: Any, tmp_path: Path) -> None:
    name, error = HOSTILE[10] + HOSTILE[1], "".join(HOSTILE[:12])
    said = [{"who": who, "name": text, "text": text} for text in [*HOSTILE, ALL] for who in ("before", "after")]
    said += [
        {"who": "__proto__", "name": ALL, "text": ALL},
        {"who": "after", "name": name, "text": ALL},
        {"error": error},
    ]
    body = "".join(json.dumps(line) + "\n" for line in said)
    with served(hostile_run(tmp_path / "run")) as address, opened(browser, address) as page:
        page.route("**/ask?*", lambda route: route.fulfill(body=body, content_type="application/x-ndjson"))
        go(page, "ask")
        page.fill("#ask textarea", ALL[:2000])
        expect(page.locator("#ask button")).to_be_enabled()
        page.keyboard.press("Enter")
        expect(page.locator("#ask .answer h3").last).to_have_text(
            f"after: ⟨202E⟩gnirts desrever⟨202C⟩ ⟨2066⟩isolate{HOSTILE[1]}"
        )
        for place in ("#ask .answer .spoken >> nth=1", "#ask [role=status]"):
            for text in SHOWN:
                expect(page.locator(place)).to_contain_text(text)
        harmless(page, "#ask")
        until(lambda: fits(page))


@pytest.mark.parametrize("view", ["answer", "journal"])
def test_what_others_say_to_a_person_is_text(browser: Any, view: str) -> None:
    tasks = [{"label": text[:200], "others": 0.5} for text in HOSTILE] + [{"label": ALL, "others": 0.5}]
    state = STATE | {"name": ALL, "swarm": ALL, "note": ALL, "silo": True, "tasks": tasks}
    question = QUESTION | {"task": ALL, "text": ALL, "pictures": ["javascript:hacked=1", "data:text/html,x"]}
    wrong = WRONG | {"task": ALL, "text": ALL, "answers": HOSTILE[:8], "rewards": [0.0] * 8, "right": ALL}
    text = {"task": ALL, "text": ALL, "answers": [ALL], "right": ALL, "rewards": [0.0]}
    entries = [entry | text | {"learners": [each | {"name": ALL} for each in entry["learners"]]} for entry in JOURNAL]
    said = {
        "state": state,
        "question": {"questions": [{**question, "prompt": [], "marks": None, "longest": 10**6}]},
        "answer": wrong,
        "journal": {"entries": entries},
    }

    def hostile(route: Any) -> None:
        what = route.request.url.partition("/api/")[2].partition("?")[0]
        if what in said:
            route.fulfill(body=json.dumps(said[what]), content_type="application/json")
        else:
            serve(route)

    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.set_fixed_time(NOW * 1000)
    page.route("**/*", hostile)
    page.goto(f"http://shoal.test/#{view}")
    page.wait_for_selector("#feed li")
    if view == "answer":
        answered(page)
    for place in (f"#{view}", "#feed", "#name"):
        for text in SHOWN if place != "#feed" else ["<script>window.hacked=1</script>"]:  # names are cut
            expect(page.locator(place)).to_contain_text(text)
    harmless(page, "main, aside, header")
    assert not [url for url in asked if not url.startswith("http://shoal.test/")]
    page.close()


def harmless(page: Any, where: str) -> None:
    assert page.evaluate("window.hacked") is None
    made = [f"{room.strip()} {tag}" for room in where.split(",") for tag in ("script", "iframe", "svg", "style")]
    assert page.locator(", ".join(made)).count() == 0
    assert page.locator("[onerror], [onload], img[src^=javascript]").count() == 0
    assert set(SAID) <= {"state", "question", "answer", "journal"}


def test_what_strangers_write_into_an_archive_is_text(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("shoal_extras.archive.format")
    from test_watch_archive import archive, spoil

    from shoal_web.watch.archive import ArchiveSource
    from shoal_web.watch.sources import Sources

    folder = archive(tmp_path / "reef")
    spoil(folder)
    with (
        closing(ArchiveSource(folder, HOSTILE[1])) as source,
        serving(Sources([source])) as address,
        opened(browser, f"{address}#view=archive") as page,
    ):
        expect(page.locator("#archive table").first).to_contain_text("<script>window.hacked=1</script>")
        page.wait_for_selector("#archive .chart[data-drawn]")
        harmless(page, "#archive, header")
        page.click("nav a[data-view=rollouts]")
        page.locator(".rollouts .link").first.click()
        expect(page.locator("dialog .proof")).to_be_visible()
        harmless(page, "#rollouts, dialog")
