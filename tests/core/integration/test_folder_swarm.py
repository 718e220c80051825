"""`shoal join` through a folder, as programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from strangers import Node
from test_network import until

pytestmark = pytest.mark.slow


def test_three_nodes_learn_through_a_folder_and_two_go_on_without_the_third(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with ExitStack() as stack:
        one, two, three = (
            stack.enter_context(Node(tmp_path / f"{n}", shared, "--transport", "folder", "--seed", n)) for n in range(3)
        )

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


def peers(node: Node) -> list[dict[str, str]]:
    found: list[dict[str, str]] = node.status["admission"]["peers"]
    return found
