"""`shoal join` through a folder, as programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from strangers import QUICK, Node, program
from test_network import until

pytestmark = pytest.mark.slow


def test_three_nodes_learn_through_a_folder_and_two_go_on_without_the_third(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with ExitStack() as stack:
        one, two, three = (stack.enter_context(Node(tmp_path / f"{n}", shared, "--seed", n)) for n in range(3))

        def makers(node: Node) -> set[str]:
            return {maker for maker, *_ in node.learned_from()}

        until(lambda: all(len(makers(node)) == 2 for node in (one, two, three)), 150)
        three.program.process.kill()
        three.program.wait()
        before = len(one.learned_from()), len(two.learned_from())
        name = two.status["name"]
        until(lambda: sum(maker == name for maker, *_ in one.learned_from()[before[0] :]) > 4, 90)
        until(lambda: len(two.learned_from()) > before[1] + 4, 90)
        said = subprocess.run([sys.executable, "-m", "shoal", "status", one.run], capture_output=True, text=True)
        assert "peers" in said.stdout
        assert "shards" not in said.stdout
        for node in (one, two):
            assert node.status["faults"] == 0
            assert set(node.status["neighbours"]) >= {peer["id"] for peer in peers(node)}
            assert node.program.stop(signal.SIGINT) == 130
            learned = node.learned_from()
            assert len(learned) == len(set(learned)), "learned from twice"
        three.start("--resume", three.run)
        until(lambda: three.status.get("admission", {}).get("admitted", 0) > 0, 90)
        assert json.loads((three.run / "swarm.json").read_text())["faults"] == 0


OFF = """
import sys, time
real = time.time
time.time = lambda: real() + 600
from shoal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_node_killed_again_and_again_and_a_clock_that_is_off(tmp_path: Path) -> None:
    """The others go on, the clock is named, and what was learned from is never learned from twice."""
    (tmp_path / "shared").mkdir()
    with ExitStack() as stack:
        one, two = (stack.enter_context(Node(tmp_path / f"{n}", tmp_path / "shared", "--seed", n)) for n in range(2))
        words = ("join", tmp_path / "shared", *QUICK, "--out", tmp_path / "off")
        stack.enter_context(
            program(*words, home=tmp_path / "home", command=(sys.executable, "-u", "-c", OFF), says="round")
        )
        for _ in range(3):
            before = len(one.learned_from())
            until(lambda before=before: len(one.learned_from()) > before + 4, 120)
            two.program.process.kill()
            two.program.wait()
            two.start("--resume", two.run)
        until(lambda: "a clock is wrong" in one.status["warning"], 120)
        assert "about 10 min ahead" in one.status["warning"]
        learned = one.learned_from()
        assert len(learned) == len(set(learned)), "learned from twice"
        assert one.status["faults"] == 0


def peers(node: Node) -> list[dict[str, str]]:
    found: list[dict[str, str]] = node.status["admission"]["peers"]
    return found
