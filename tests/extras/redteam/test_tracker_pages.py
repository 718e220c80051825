"""A stranger's answer in the pages of TensorBoard and trackio, each as a process, in a real browser: it is text."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from test_network import free_port, until
from test_trackers import result, rows

from shoal.config.load import config_from_keywords
from shoal.runs.trackers import started

pytest.importorskip("playwright", reason="pip install playwright")
from playwright.sync_api import Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or ""
pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(not CHROMIUM, reason="chromium is absent: apt-get install chromium"),
]
SHOW = "import sys, trackio; trackio.show('shoal', open_browser=False, host='127.0.0.1', server_port=int(sys.argv[1]))"


@contextmanager
def beacon() -> Iterator[tuple[str, list[str]]]:
    """The address of a stranger's server, and what was asked of it."""
    asked: list[str] = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def hostile(address: str) -> str:
    return (
        f'<script>window.hacked=1</script><img src="{address}/html" onerror="window.hacked=1"> ![x]({address}/markdown)'
        f" [a](javascript:window.hacked=1) <svg onload=window.hacked=1> <iframe src={address}/frame></iframe>\n"
        f"# heading\n```\n</code></pre><style>@import url({address}/css)</style> $\\href{{javascript:hacked=1}}{{x}}$"
    )


@contextmanager
def opened(command: list[str], port: int, environment: dict[str, str]) -> Iterator[Page]:
    """A page in a browser, on what this process serves."""

    def listens() -> bool:
        with socket.socket() as link:
            return link.connect_ex(("127.0.0.1", port)) == 0

    process = subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(listens)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.set_default_timeout(60_000)
            yield page
            browser.close()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])
def test_a_stranger_s_answer_is_text(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(name)
    environment = {"TRACKIO_DIR": str(tmp_path / "trackio")}
    monkeypatch.setenv("TRACKIO_DIR", environment["TRACKIO_DIR"])
    for module in [each for each in sys.modules if each.split(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, module)  # it reads that variable when it is imported
    run, port = tmp_path / "run", free_port()
    run.mkdir()
    with beacon() as (address, asked):
        with started(config_from_keywords({"report_to": name}), run, ["node-1"]) as trackers:
            [tracker] = trackers.values()
            tracker.report(1, rows(1, "node-1"), [("node-1", result(hostile(address)))], late=False)
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(run), "--port", str(port)]
        if name == "trackio":
            command = [sys.executable, "-c", SHOW, str(port)]
        with opened(command, port, environment) as page:
            page.goto(f"http://127.0.0.1:{port}/" + ("#text" if name == "tensorboard" else ""))
            if name == "trackio":
                page.get_by_text("Traces", exact=True).first.click()
            said = page.get_by_text("window.hacked=1").first
            expect(said).to_be_visible(timeout=60_000)
            if name == "trackio":
                said.click()  # one trace, whole
                expect(page.get_by_text("# heading").first).to_be_visible(timeout=60_000)
            page.wait_for_timeout(1000)
            if folder := os.environ.get("SHOAL_SCREENSHOTS"):
                page.screenshot(path=f"{folder}/{name}.png", full_page=True)
            assert page.evaluate("window.hacked") is None
            assert page.locator(f"[src*='{address}'], a[href^='javascript']").count() == 0
        assert asked == []
