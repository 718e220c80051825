"""A swarm that is joined by its name: a relay, a directory at a URL, and two nodes that learn from each other."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from strangers import SWARM, Node, address, program, relay
from swarm_entries import send, serving
from test_network import until

from shoal.directory.choice import known_swarms

pytestmark = [pytest.mark.network, pytest.mark.slow]


def test_two_nodes_meet_by_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, written = address(), tmp_path / "swarms.json"
    (tmp_path / "entry.toml").write_text(
        f'name = "lagoon"\nswarm = "{SWARM}"\nrelays = ["{where}"]\n[tasks]\nsuite = "pond"\n'
    )
    with program("announce", tmp_path / "entry.toml", "--to", written, home=tmp_path / "host") as made:
        assert made.wait() == 0, made.said
    with ExitStack() as stack:
        stack.enter_context(relay(where))
        url = stack.enter_context(serving(lambda handler: send(handler, written.read_bytes())))
        words = ("lagoon", "--directory", url, "--allow-private")
        nodes = [stack.enter_context(Node(tmp_path / f"{n}", *words, "--seed", n)) for n in range(2)]
        until(lambda: all(node.learned_from() for node in nodes), 120)
        for node in nodes:
            assert "suite pond" in node.program.said
        until(lambda: all(node.status["peers"] == 1 for node in nodes))  # the file is written now and then
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "0" / "home"))
    assert set(known_swarms()) == {"lagoon"}
