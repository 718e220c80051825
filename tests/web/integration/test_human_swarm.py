"""A person in a real swarm, on loopback: a relay, a node that learns, and the page, by its API and in a browser."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from strangers import SWARM, Node, address, relay
from test_human import Page
from test_network import until

from shoal.config.settings import Config
from shoal_web.human.contributor import Contributor

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
pytestmark = [pytest.mark.network, pytest.mark.slow]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TRIES = 12
"""Questions until a node must have learned from an answer: one that it can answer itself teaches it nothing."""


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Page]]:
    """A node that learns, and somebody's page, each seeing the other."""
    folder = tmp_path_factory.mktemp("swarm")
    where = address()
    config = Config.model_validate({"round": {"nodes": 1}, "network": {"name": SWARM, "connect": [where]}})
    with (
        relay(where),
        Node(folder / "node", where) as node,
        closing(Contributor(config, folder / "me")) as one,
        closing(Page(one)) as page,
    ):
        until(lambda: page.get("/api/state")["peers"], 120)
        until(lambda: one.identity.id in node.status.get("neighbours", []), 60)
        yield node, page


def backward(text: str) -> str:
    return text.split()[-1][::-1]


def admitted(node: Node, id: str) -> int:
    peers = node.status["admission"]["peers"]
    return next((peer["admitted"] for peer in peers if peer["id"] == id), 0)


def test_a_node_learns_from_a_person_and_the_page_names_it(swarm: tuple[Node, Page]) -> None:
    node, page = swarm
    one = page.one
    for count in range(1, TRIES + 1):
        [asked] = page.post("/api/question", {"want": "spell_backward"})["questions"]
        done = page.post("/api/answer", {"round": asked["round"], "answers": [backward(asked["text"])]})
        assert done["rewards"] == [1.0]
        until(lambda count=count: admitted(node, one.identity.id) >= count, 30)
        time.sleep(5)
        if heard := [entry for entry in page.get("/api/journal")["entries"] if entry["learners"]]:
            break
    mine = {round for maker, round, _ in node.learned_from() if maker == one.identity.name}
    assert heard
    assert {entry["round"] for entry in heard} <= mine  # it says what it did
    assert {each["name"] for entry in heard for each in entry["learners"]} == {node.status["name"]}
    assert page.get("/api/state")["totals"]["learners"] == 1
    refused = next(p for p in node.status["admission"]["peers"] if p["id"] == one.identity.id)["refused"]
    assert not set(refused) - {"duplicate"}
    assert one.member.status()["faults"] == 0


@pytest.fixture
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.mark.timeout(600)
def test_in_a_browser(swarm: tuple[Node, Page], browser: Any) -> None:
    node, page = swarm
    tab = browser.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: said.append(str(error)))
    elsewhere: list[str] = []
    here = f"http://127.0.0.1:{page.port}/"
    tab.on("request", lambda asked: None if asked.url.startswith((here, "data:")) else elsewhere.append(asked.url))
    tab.goto(here)
    tab.wait_for_selector("textarea")
    border = "getComputedStyle(document.querySelector('textarea')).borderRadius"
    assert tab.evaluate(border) == "12px"  # the style sheet reaches the answer box
    tab.select_option("#want", "spell_backward")
    for _ in range(TRIES):
        tab.wait_for_selector(".tag:text('Spell backward')")
        tab.wait_for_selector("textarea")
        tab.keyboard.type(backward(tab.inner_text(".question")))  # where the focus is
        tab.keyboard.press("Enter")
        tab.wait_for_selector(".result.good")
        assert tab.inner_text(".result h2") == "Right"
        try:
            tab.wait_for_selector(".result .learners b", timeout=10_000)
            break
        except Exception:
            tab.keyboard.press("Enter")
    name = node.status["name"]
    assert tab.inner_text(".result .learners b") == name
    assert name in tab.inner_text("#feed")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("textarea")

    tab.click("text=+ another answer")
    tab.locator("textarea").nth(0).fill("<img src=x onerror=alert(1)>")
    tab.locator("textarea").nth(1).fill(backward(tab.inner_text(".question")))
    tab.click("text=Send")
    tab.wait_for_selector(".result")
    assert tab.inner_text(".result h2") == "1 of 2 are right"
    assert tab.locator("main img").count() == 0

    tab.click("text=Journal")
    tab.wait_for_selector(".entries")
    assert "<img src=x onerror=alert(1)>" in tab.inner_text(".entries")
    assert name in tab.inner_text(".entries")
    for width in (320, 390, 800, 1280):
        tab.set_viewport_size({"width": width, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert said == []
    assert elsewhere == []
