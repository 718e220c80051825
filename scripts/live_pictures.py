"""Makes the pictures of a live swarm in the documentation: three nodes, a judge, and a person who answers.

    python scripts/live_pictures.py              # some four minutes; writes docs/pictures/{human,watch}-*.png

Needs playwright and chromium. `pictures.py` makes those of a run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from pictures import DESKTOP, PHONE, served, write
from playwright.sync_api import Browser, Page, TimeoutError, sync_playwright

from shoal.config.settings import Config
from shoal.identity.keys import Identity
from shoal_host.judge.source import JudgeSource
from shoal_web.human.contributor import Contributor
from shoal_web.human.server import make_app as human_app
from shoal_web.serving.guard import Access
from shoal_web.serving.server import listening
from shoal_web.watch.server import make_app as watch_app
from shoal_web.watch.sources import Sources

NODES = 3
ROUNDS = 120
TASK = "spell_backward"


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        relay, judge = free(), free()
        stack.enter_context(shoal("relay", "--listen", relay))
        words = ("--data", folder / "judge", "--interval", 0.5, "--work", 0)
        stack.enter_context(shoal("judge", "--listen", judge, *words))
        key = Identity.load_or_create(folder / "judge" / "identity").id
        network = {"name": "lagoon", "connect": [relay]}
        one = Contributor(Config.model_validate({"round": {"nodes": 1}, "network": network}), folder / "me")
        stack.enter_context(closing(one))
        for node in range(NODES):
            where = (
                "--swarm",
                "lagoon",
                "--judges",
                f"http://{judge}#{key}",
                "--out",
                folder / str(node),
                "--threads",
                1,
            )
            about = ("--rounds", 100_000, "--eval-every", 20, "--eval-questions", 8)
            home = {"SHOAL_HOME": str(folder / f"home-{node}")}
            stack.enter_context(shoal("join", relay, *where, *about, "--seed", node, **home))
        playwright = stack.enter_context(sync_playwright())
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        until(lambda: one.member.status()["peers"] >= NODES, 120)
        with served(human_app(one, Access())) as address:
            picture_answer(browser, address)
        source = JudgeSource(folder / "judge")
        until(lambda: min(row["round"] for row in source.summary()["board"]) > ROUNDS, 600)
        with served(watch_app(Sources([source]), Access())) as address:
            picture(browser, address, "#judge .chart[data-drawn]", "watch-judge", full_page=True)
        browser.close()


def picture_answer(browser: Browser, address: str) -> None:
    """A right answer from which nodes learned, on a desktop and on a phone."""
    for screen, name in ((DESKTOP, "human-answer"), (PHONE, "human-phone")):
        tab = browser.new_page(**screen)
        tab.goto(address)
        tab.wait_for_selector("textarea")
        tab.select_option("#want", TASK)
        for _ in range(30):
            if answer(tab):
                break
        tab.wait_for_timeout(1000)
        write(tab.screenshot(), name)
        tab.close()


def answer(tab: Page) -> bool:
    """Answers a question; whether a node says that it learned from the answer."""
    tab.wait_for_selector(".tag:text('Spell backward')")
    tab.wait_for_selector("textarea")
    tab.locator("textarea[name=answer]").fill(tab.inner_text(".question").split()[-1][::-1])
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".result.good")
    try:
        tab.wait_for_selector(".result .learners b", timeout=10_000)
    except TimeoutError:
        tab.keyboard.press("Enter")
        return False
    return True


def picture(browser: Browser, address: str, ready: str, name: str, **how: Any) -> None:
    tab = browser.new_page(**DESKTOP)
    tab.goto(address)
    tab.wait_for_selector(ready, timeout=60_000)
    tab.wait_for_timeout(3000)
    write(tab.screenshot(**how), name)
    tab.close()


def free() -> str:
    with listening("127.0.0.1", 0) as bound:
        return f"127.0.0.1:{bound.getsockname()[1]}"


def until(done: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise SystemExit("the swarm does not get there; run it again on a quieter machine")
        time.sleep(0.5)


@contextmanager
def shoal(*words: object, **environment: str) -> Iterator[None]:
    command = [sys.executable, "-m", "shoal", *map(str, words)]
    quiet = {"stdout": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, env=os.environ | environment, **quiet) as process:  # type: ignore[call-overload]
        try:
            yield
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
