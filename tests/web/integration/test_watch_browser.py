"""`shoal watch` in a real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_judge_source import KEYS, Book
from test_judge_source import fill as fill_book
from test_network import until
from test_watch_swarm import ADA, BOB, said
from watched import (
    HOSTILE,
    STATUS,
    hostile_names,
    hostile_run,
    lesson,
    metric,
    pictured_run,
    small_run,
    told_run,
    write_run,
)

pytest.importorskip("playwright", reason="pip install playwright")

import uvicorn
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from shoal.identity.keys import name_of
from shoal.runs.folder import RunFolder
from shoal.transports.zenoh.session import TransportOptions
from shoal.wire.notices import Lesson
from shoal_host.judge.source import JudgeSource
from shoal_web.serving.guard import Access
from shoal_web.watch.server import make_app
from shoal_web.watch.sources import Sources
from shoal_web.watch.swarm import SwarmSource

CHROMIUM = shutil.which("chromium") or ""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(not CHROMIUM, reason="chromium is absent: apt-get install chromium"),
]
VIEWS = ["Is it learning?", "What does it say now?", "Ask", "Does the swarm help?", "Rollouts", "Details"]
PATIENCE = 30_000
"""ms: the machine may be busy."""
TOKEN = "0123456789abcdef"
expect.set_options(timeout=PATIENCE)


def served(*paths: Path, token: str | None = None) -> AbstractContextManager[str]:
    return serving(Sources(folders=paths), token)


@contextmanager
def serving(sources: Sources, token: str | None = None) -> Iterator[str]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()  # so that who comes before the server waits for it
        app = make_app(sources, Access(token=token))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # a container's root has no sandbox of chromium's
        flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        shown = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield shown
        shown.close()


@contextmanager
def opened(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """A page there that asked nobody else for anything and had no error and nothing refused by its policy."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.goto(address)
    yield page
    context.close()
    assert not [url for url in asked if not url.startswith((re.split("[?#]", address)[0], "data:"))]
    assert not wrong


def go(page: Page, view: str) -> None:
    page.click(f"nav a[data-view={view}]")
    expect(page.locator(f"#{view}")).to_be_visible()


def test_filters_search_and_a_rollout_by_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    with served(small_run(tmp_path / "run")) as address, opened(browser, address) as page:
        go(page, "progress")
        expect(page.locator("#progress table").first).to_contain_text("ada")
        page.wait_for_selector("#progress .chart[data-drawn]")
        assert "never practised" in (page.locator("#progress .chart").first.get_attribute("aria-label") or "")
        go(page, "rollouts")
        rows = page.locator(".rollouts > li")
        expect(rows).to_have_count(12)
        page.select_option("select[name=node]", "ada")
        expect(rows).to_have_count(6)
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("/")
        page.keyboard.type("3 OR NOT")
        expect(rows).to_have_count(1)
        rows.locator("button").focus()
        page.keyboard.press("Enter")
        dialog = page.locator("dialog")
        expect(dialog.locator(".answer")).to_have_count(2)
        expect(dialog).to_contain_text("bob")
        page.keyboard.press("Escape")
        expect(dialog).not_to_be_visible()
        assert page.evaluate("document.activeElement.textContent") == "What is it?"


def test_all_questions_before_and_after_and_one_of_them_whole(browser: Browser, tmp_path: Path) -> None:
    with served(told_run(tmp_path / "run")) as address, opened(browser, address) as page:
        go(page, "learned")
        expect(page.locator("#learned .lead")).to_contain_text("3 questions that it never practised, ada now answers 2")
        expect(page.locator(".pair")).to_have_count(3)
        page.locator(".chip", has_text="became right 1").click()
        expect(page.locator(".pair")).to_have_count(1)
        expect(page.locator(".pair")).to_contain_text("gcd of 12, 18?before✗wrong7now✓right6")
        page.locator(".pair button").click()
        story = page.locator("#learned .story")
        expect(story.locator(".ask")).to_have_text("gcd of 12, 18?")
        expect(story.locator(".turn")).to_contain_text("right for the first time")
        page.locator(".chip", has_text="all 3").click()
        page.keyboard.press("Tab")
        page.locator(".pair button", has_text="gcd of 12, 30?").focus()
        page.keyboard.press("Enter")
        expect(story).to_contain_text("Not right yet, in 4 evaluations")
        expect(page.locator(".pair.open")).to_contain_text("gcd of 12, 30?")
        assert page.evaluate("document.activeElement.ariaExpanded") == "true"
        with opened(browser, page.url) as sent:  # to somebody
            expect(sent.locator("#learned .story .ask")).to_have_text("gcd of 12, 30?")
        go(page, "rollouts")
        page.locator(".rollouts .link").first.click()
        expect(page.locator("dialog .answer")).to_have_count(2)
        expect(page.locator("dialog")).to_contain_text("Right answer: 6")
        expect(page.locator("dialog .answer").first).to_contain_text("Read: 7 as number")


def test_filters_and_an_open_rollout_stand_in_the_address(browser: Browser, tmp_path: Path) -> None:
    with served(small_run(tmp_path / "run")) as address, opened(browser, address) as page:
        go(page, "rollouts")
        page.select_option("select[name=node]", "bob")
        page.fill("input[name=text]", "says 4 or")
        rows = page.locator(".rollouts > li")
        expect(rows).to_have_count(1)
        expect(page).to_have_url(re.compile("text=says"))
        rows.locator("button").click()
        expect(page.locator("dialog .answer")).to_have_count(2)
        with opened(browser, page.url) as sent:
            expect(sent.locator("dialog .answer")).to_have_count(2)
            sent.keyboard.press("Escape")
            expect(sent.locator(".rollouts > li")).to_have_count(1)
            assert sent.input_value("input[name=text]") == "says 4 or"
            go(sent, "progress")
            go(sent, "rollouts")  # which keeps its filters
            assert sent.input_value("select[name=node]") == "bob"
            sent.fill("input[name=text]", "that is nowhere")
            sent.locator("button", has_text="Clear the filters").click()
            expect(sent.locator(".rollouts > li")).to_have_count(12)


def test_what_differs_between_two_runs(browser: Browser, tmp_path: Path) -> None:
    one, other = small_run(tmp_path / "one"), small_run(tmp_path / "other")
    (other / "config.toml").write_text("seed = 7\nrounds = 3\n")
    with served(one, other) as address, opened(browser, address) as page:
        page.select_option("#run", page.locator("#run option", has_text="one").get_attribute("value"))
        go(page, "settings")
        texts = page.locator("#settings pre")
        expect(texts).to_have_text(["seed = 0\n"])
        page.locator("#settings summary", has_text="other runs").click()
        page.get_by_role("checkbox", name="other").check()
        expect(texts).to_have_text(["seed = 0", "seed = 7\nrounds = 3"])


def test_empty_runs_say_what_to_do(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "swarm.json").write_text(json.dumps(STATUS))
    with served(run) as address, opened(browser, address) as page:
        for view, words in (
            ("learned", "The first one appears here as soon as it comes"),
            ("progress", "No node has finished a round yet"),
            ("swarm", "Nobody has joined yet. On another machine: shoal join HOST:PORT --swarm reef"),
            ("rollouts", "the first ones come with round 1"),
            ("settings", "No node has finished a round yet"),
        ):
            go(page, view)
            expect(page.locator(f"#{view}")).to_contain_text(words)


def test_a_folder_without_a_run_shows_the_first_one_when_it_comes(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path) as address, opened(browser, address) as page:
        expect(page.locator("#problem")).to_contain_text("There is no run here yet")
        expect(page.locator("#progress, #figures, nav").filter(visible=True)).to_have_count(0)
        small_run(tmp_path / "run")
        expect(page.locator("#progress .board")).to_contain_text("ada")


def test_sixty_four_nodes(browser: Browser, tmp_path: Path) -> None:
    nodes = [f"node-{at}" for at in range(1, 65)]
    lessons = [lesson(node, maker, 1) for node in nodes for maker in nodes]
    run = write_run(tmp_path / "run", [metric(1, node) for node in nodes], learned={2: lessons})
    with served(run) as address, opened(browser, address) as page:
        rows = page.locator("#progress .board tbody tr")
        expect(rows).to_have_count(20)
        page.locator("#progress").get_by_role("button", name="Show all 64").focus()
        page.keyboard.press("Enter")
        expect(rows).to_have_count(64)
        assert page.evaluate("document.activeElement.ariaLabel") == "Nodes"
        go(page, "swarm")
        options = page.locator("#swarm select option")
        expect(options).to_have_text(nodes)
        page.locator("#swarm select").select_option("node-10")
        expect(page.locator("#swarm .lead")).to_contain_text("what node-10 learned came from 63 others")
        expect(page.locator("#swarm")).to_contain_text("The arrows to node-10 stand out")


def test_a_silent_swarm_says_so(browser: Browser) -> None:
    swarm = SwarmSource("reef", TransportOptions(listen=("127.0.0.1:0",)))
    with closing(swarm), serving(Sources([swarm])) as address, opened(browser, address) as page:
        expect(page.locator("#progress .board")).to_contain_text("Nobody has said anything yet")
        go(page, "swarm")
        expect(page.locator("#swarm")).to_contain_text("Nobody has said whom it learned from yet")


def test_people_have_a_shape_of_their_own(browser: Browser, tmp_path: Path) -> None:
    learned = {2: [lesson("ada", maker, 1) for maker in ("bob", "eve")]}
    run = write_run(tmp_path / "run", [metric(1, "ada")], {}, learned)
    peer = {"id": "ab", "admitted": 1, "refused": {}, "muted": 0.0, "last": 1e9}
    peers = [peer | {"name": "bob", "kind": "human"}, peer | {"name": "eve"}]
    (run / "swarm.json").write_text(json.dumps(STATUS | {"admission": {"admitted": 2, "refused": {}, "peers": peers}}))
    with served(run) as address, opened(browser, address) as page:
        go(page, "swarm")
        expect(page.locator("#swarm")).to_contain_text("● a node that learns · ▲ a person")


def test_a_limited_maker_is_named_with_the_rounds_and_the_reason(browser: Browser, tmp_path: Path) -> None:
    learned = {2: [lesson("ada", "bob", 1)]}
    run = write_run(tmp_path / "run", [metric(1, "ada")], {}, learned)
    peer = {"id": "ab", "admitted": 12, "refused": {}, "muted": 0.0, "last": 1e9}
    peers = [peer | {"name": "bob"}, peer | {"name": "sly-eel-3c4d"}]
    status = STATUS | {"limited": {"sly-eel-3c4d": [16, 0.27]}, "shortened": {"bob": 0.02}}
    status |= {"limited_by": {"fair-cod-5e6f": [7, 0.31]}}
    (run / "swarm.json").write_text(json.dumps(status | {"admission": {"admitted": 24, "refused": {}, "peers": peers}}))
    with served(run) as address, opened(browser, address) as page:
        go(page, "swarm")
        row = page.locator("#swarm tr", has_text="sly-eel-3c4d")
        expect(row).to_contain_text("16 rounds more (27 %")
        said = "says that it does not learn from this node: 7 rounds more (31 %"
        expect(page.locator("#swarm tr", has_text="fair-cod-5e6f")).to_contain_text(said)
        if folder := os.environ.get("SHOAL_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/limited.png", full_page=True)


def test_it_moves_with_a_run_and_is_not_loaded_again(browser: Browser, tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    with served(run) as address, opened(browser, address) as page:
        first = page.locator("#figures .figure", has_text=re.compile(r"^\d+rounds$")).locator("b")
        expect(first).to_have_text("7")
        page.evaluate("window.same = true")
        with RunFolder.open(run) as folder:
            folder.log([metric(8, "ada"), metric(8, "eve")])
        expect(first).to_have_text("8")
        expect(page.locator("#progress table").first).to_contain_text("eve")
        assert page.evaluate("window.same")


def test_a_live_run_of_two_nodes(browser: Browser, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "live"
    words = ["run", "--nodes", "2", "--rounds", "200", "--out", str(run), "--quiet", "--threads", "1"]
    with subprocess.Popen([sys.executable, "-m", "shoal", *words]) as program:
        try:
            end = time.monotonic() + 120
            while not (run / "metrics.jsonl").exists() and time.monotonic() < end:
                time.sleep(0.5)
            with served(tmp_path / "runs") as address, opened(browser, address) as page:
                round = page.locator("#figures .figure", has_text="of 200 rounds").locator("b")
                expect(round).not_to_have_text("…")
                go(page, "progress")
                page.evaluate("window.same = true")
                seen: set[str] = set()
                end = time.monotonic() + 90
                while len(seen) < 3 and time.monotonic() < end:
                    seen.add(round.inner_text())
                    time.sleep(0.5)
                assert len(seen) >= 3
                assert page.evaluate("window.same")
                expect(page.locator("#progress table").first).to_contain_text("node-2")
        finally:
            program.kill()


def test_texts_of_strangers_are_escaped(browser: Browser, tmp_path: Path) -> None:
    run = hostile_run(tmp_path / "run")
    with served(run) as address, opened(browser, address) as page:
        page.wait_for_selector("#progress .chart[data-drawn]")
        go(page, "learned")
        page.select_option("#learned select >> nth=0", hostile_names()[0])  # waits for it
        questions = page.locator(".pair > button")
        expect(questions).to_have_count(len(HOSTILE))
        for at in range(len(HOSTILE)):
            questions.nth(at).click()
            expect(questions.nth(at)).to_have_attribute("aria-expanded", "true")
        for view in ("progress", "swarm", "settings", "rollouts"):
            go(page, view)
            page.wait_for_timeout(1500)
            for summary in page.locator(f"#{view} .card details summary:visible").all():
                summary.click()
        rows = page.locator(".rollouts > li")
        expect(rows).to_have_count(20)
        page.click("text=Show more")
        expect(rows).to_have_count(len(HOSTILE))
        giant = 0
        for at in range(len(HOSTILE)):
            rows.nth(at).locator("button").click()
            expect(page.locator("dialog .answer")).to_have_count(1)
            assert page.locator("dialog .answer pre").evaluate(
                "(e) => e.scrollHeight >= e.clientHeight && e.clientHeight <= 360"
            )
            notes = page.locator("dialog .answer .note").all_text_contents()
            giant += any("83,616 more characters" in note for note in notes)
            assert any("Read:" in note for note in notes)
            page.keyboard.press("Escape")
        assert giant == 1
        page.fill("input[name=text]", HOSTILE[0])  # which another contains
        expect(rows).to_have_count(2)
        expect(rows.last).to_contain_text("<script>window.hacked=1</script>")
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img, main iframe, main svg, main script, dialog script").count() == 0
        until(lambda: fits(page))


def test_the_browser_itself_refuses_markup(browser: Browser, tmp_path: Path) -> None:
    with served(small_run(tmp_path / "run")) as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#progress .chart[data-drawn]", timeout=PATIENCE)
        for code in (
            "document.body.innerHTML = '<b>x</b>'",
            "Object.assign(document.createElement('script'), {textContent: 'x = 1'})",
            "setTimeout('x = 1')",
        ):
            with pytest.raises(Error, match="Trusted"):
                page.evaluate(code)
        page.close()


def test_a_phone_shows_all_without_scrolling_sideways(browser: Browser, tmp_path: Path) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark", "has_touch": True}
    with served(small_run(tmp_path / "run")) as address, opened(browser, address, **phone) as page:
        page.wait_for_selector("#progress .chart[data-drawn]")
        for view in ("learned", "progress", "ask", "swarm", "rollouts", "settings"):
            go(page, view)
            page.wait_for_timeout(800)
            until(lambda: fits(page))
        go(page, "progress")
        expect(page.locator("#progress .board td").last).to_be_visible()
        whole = (
            "[...document.querySelectorAll('#progress .board td')].every((e) => e.getBoundingClientRect().right < 360)"
        )
        assert page.evaluate(whole)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        expect(page.locator("#theme")).to_have_text("Theme: light")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


@pytest.mark.parametrize("wide", [1280, 390])
def test_pictures_are_small_in_the_list(browser: Browser, tmp_path: Path, wide: int) -> None:
    size = {"viewport": {"width": wide, "height": 500}}
    with served(pictured_run(tmp_path / "run")) as address, opened(browser, address, **size) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "/rollout?" in request.url else None)
        go(page, "rollouts")
        rows = page.locator(".rollouts > li")
        expect(rows).to_have_count(13)
        expect(rows.first).to_contain_text("a red circle")
        page.wait_for_timeout(500)
        assert len(asked) < 13, "those out of sight are not asked for"
        for at in range(13):
            rows.nth(at).scroll_into_view_if_needed()
        expect(page.locator(".rollouts img")).to_have_count(12)
        expect(page.locator(".rollouts .thumbnail")).to_have_count(12)
        assert max(box["width"] for each in page.locator(".rollouts img").all() if (box := each.bounding_box())) <= 40
        until(lambda: fits(page))
        if folder := os.environ.get("SHOAL_LOOK"):
            page.screenshot(path=f"{folder}/thumbnails-{wide}.png", full_page=True)


def test_everything_has_a_name_for_screen_readers(browser: Browser, tmp_path: Path) -> None:
    with served(told_run(tmp_path / "run")) as address, opened(browser, address) as page:
        go(page, "learned")
        page.locator(".pair button").first.click()
        expect(page.locator("#learned .story .ask")).to_be_visible()
        go(page, "rollouts")
        expect(page.locator(".rollouts > li")).to_have_count(1)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("button, a, select, input, [role=region], [role=img], nav, section")]
                .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent.trim()))
                .map((e) => e.outerHTML.slice(0, 100))"""
        )
        assert nameless == []
        assert page.evaluate("[...document.querySelectorAll('table')].every((t) => t.caption)")
        page.keyboard.press("Tab")
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        for _ in range(6):
            page.keyboard.press("Tab")
            assert page.evaluate(outline) == "solid"


def test_the_token_lets_in(browser: Browser, tmp_path: Path) -> None:
    with served(small_run(tmp_path / "run"), token=TOKEN) as address, opened(browser, address) as page:
        assert page.url.endswith("/enter")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#figures .figure", has_text=re.compile(r"^\d+rounds$")).locator("b")).to_have_text("7")
        assert page.url.partition("#")[0] == address


def views_of(page: Page) -> list[str]:
    return page.locator("nav a:visible").all_inner_texts()


def fits(page: Page) -> bool:
    """Nothing sticks out at the right; charts follow the width of the page a moment later."""
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def is_escaped(page: Page) -> bool:
    strange = page.locator("main img, main iframe, main svg, main script").count()
    until(lambda: fits(page))
    return not strange and page.evaluate("window.hacked") is None


def test_a_judge_and_what_strangers_call_their_models(browser: Browser, tmp_path: Path) -> None:
    with closing(Book(tmp_path / "judge")) as book:
        fill_book(book, 20)
        for at, text in enumerate(HOSTILE):
            book.add(KEYS[at % 8], 30 + at, 1.0, model=text[:256].replace("\x00", ""), failure=text[:90])
        judge = JudgeSource(tmp_path / "judge")
        with serving(Sources([judge])) as address, opened(browser, address) as page:
            expect(page.locator("#judge table").first).to_contain_text(judge.summary()["board"][0]["node"])
            until(lambda: page.locator("#judge .chart[data-drawn]").count() == 2)
            assert views_of(page) == ["Judge"]
            for summary in page.locator("#judge .card details summary:visible").all():
                summary.click()
            page.select_option("#judge select >> nth=0", "node")
            expect(page.locator("#judge .chart").nth(1)).to_have_attribute("aria-label", re.compile(name_of(KEYS[0])))
            assert is_escaped(page)
            page.set_viewport_size({"width": 360, "height": 740})
            assert is_escaped(page)


def test_a_live_swarm_and_what_strangers_say(browser: Browser, tmp_path: Path) -> None:
    with closing(SwarmSource("reef", TransportOptions(listen=("127.0.0.1:0",)))) as swarm:
        lessons = tuple(Lesson(text[:250], 1, 0, "gcd") for text in HOSTILE)
        swarm._take(said(ADA.public, 1, model=HOSTILE[0], learned=lessons, pass_at_1=0.5))
        swarm._take(said(BOB.public, 9))
        sources = Sources([swarm], [small_run(tmp_path / "run")])
        with serving(sources) as address, opened(browser, address) as page:
            expect(page.locator("#progress table").first).to_contain_text(ADA.name)
            expect(page.locator("#about")).to_contain_text("own word")
            assert views_of(page) == ["Is it learning?", "Does the swarm help?"]
            go(page, "swarm")
            page.wait_for_selector("#swarm .chart[data-drawn]")
            page.locator("#swarm .card details summary").first.click()
            expect(page.locator("#swarm table").first).to_contain_text(HOSTILE[0])
            assert is_escaped(page)
            swarm._take(said(ADA.public, 2))
            expect(page.locator("#figures .figure b").nth(1)).to_have_text("3")
            page.select_option("#run", index=1)
            expect(page.locator("#about")).not_to_be_visible()
            assert views_of(page) == VIEWS
