"""Makes the pictures of the window in the documentation: a run, and its views in chromium.

    python scripts/pictures.py              # some two minutes; writes docs/pictures/watch-*.png
    python scripts/pictures.py --run DIR    # of a run that is there
    python scripts/pictures.py --run DIR --only ask --asked "How many millilitres are 9 litres?"

Needs playwright and chromium. `live_pictures.py` makes those of a judge, a live swarm and a person.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from shoal_web.serving.guard import Access
from shoal_web.watch.server import make_app
from shoal_web.watch.sources import Sources

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 860}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "color_scheme": "dark"}
SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "learned": ("view=learned", DESKTOP),
    "ask": ("view=ask", DESKTOP),
    "progress": ("view=progress", DESKTOP),
    "swarm": ("view=swarm", DESKTOP),
    "rollouts": ("view=rollouts", DESKTOP),
    "rollout": ("view=rollouts", DESKTOP),
    "phone-learned": ("view=learned", PHONE),
    "phone-progress": ("view=progress", PHONE),
    "phone-rollouts": ("view=rollouts&reward=1", PHONE),
}
"""The address of each picture, and the screen."""
ASKED = "Calculate 45 - 12."
READY = {"ask": "#ask button:enabled", "learned": ".pair", "rollouts": ".rollouts > li"}
"""What has to be there first; elsewhere a chart."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="the folder of a run")
    parser.add_argument("--only", nargs="+", choices=SHOWN, default=list(SHOWN), help="these pictures")
    parser.add_argument("--asked", default=ASKED, help="the question of the view Ask")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        run = args.run or _made(Path(temporary) / "reef")
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        with served(make_app(Sources(folders=[run]), Access())) as address:
            for name in args.only:
                place, screen = SHOWN[name]
                _take(browser, f"{address}#{place}", screen, name, args.asked)
        browser.close()


def _made(run: Path) -> Path:
    words = ["run", "--seed", "0", "--rounds", "100", "--nodes", "4", "--out", str(run), "--quiet"]
    subprocess.run([sys.executable, "-m", "shoal", *words], check=True)
    return run


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of a page that is served meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
        server.should_exit = True
        thread.join(10)


def _take(browser: Browser, address: str, screen: dict[str, Any], name: str, asked: str) -> None:
    page = browser.new_page(**screen)
    page.set_default_timeout(60_000)
    page.goto(address)
    view = address.partition("view=")[2].partition("&")[0]
    page.wait_for_selector(READY.get(view, f"#{view} .chart[data-drawn]"))
    if name == "rollout":
        page.locator(".rollouts > li button").first.click()
        page.wait_for_selector("dialog .answer")
    if name == "ask":
        page.fill("textarea", asked)
        page.keyboard.press("Enter")
        page.wait_for_selector("#ask [role=status]:has-text('Done')", timeout=180_000)
    page.wait_for_timeout(2000)  # the other charts
    write(page.screenshot(), f"watch-{name}")
    page.close()


def write(screenshot: bytes, name: str) -> None:
    """Into the documentation, with few colours."""
    shown = Image.open(io.BytesIO(screenshot)).convert("RGB")
    shown.quantize(128).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
