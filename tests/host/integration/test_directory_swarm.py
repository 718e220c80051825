"""A swarm that is joined by its name: a relay or a host, a directory at a URL, and nodes that learn from each other."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from strangers import SWARM, Node, address, program, relay
from swarm_entries import send, serving
from test_host import free_ports
from test_network import until

from shoal.invitations.pinned import known_swarms

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


def test_the_swarm_of_a_host_is_joined_from_somebody_elses_directory(tmp_path: Path) -> None:
    port, club, theirs = free_ports(), tmp_path / "club", tmp_path / "swarms.json"
    words = (club, "--swarm", "club", "--about", "For members.", "--port", port, "--address", "127.0.0.1")
    with ExitStack() as stack:
        stack.enter_context(program("host", *words, says="Ctrl-C ends"))
        for _ in range(2):  # again, as each month
            entries = club / "public" / "swarms.json"
            with program("announce", entries, "--to", theirs, home=tmp_path / "somebody") as made:
                assert made.wait() == 0, made.said
        url = stack.enter_context(serving(lambda handler: send(handler, theirs.read_bytes())))
        where = ("--directory", url)
        relay_at, judge_at = f"tls/127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
        for named, told in (((), ("club", relay_at, "For members.")), (("club",), (relay_at, judge_at, "suite pond"))):
            with program("join", "--list", *named, *where, home=tmp_path / "looks") as listing:
                assert listing.wait() == 0, listing.said
            assert all(part in listing.said for part in told), listing.said
        nodes = [stack.enter_context(Node(tmp_path / f"{n}", "club", *where, "--allow-private")) for n in range(2)]
        until(lambda: all(node.learned_from() for node in nodes), 240)
        for node in nodes:
            assert "certificate" in node.program.said
        home = tmp_path / "0" / "home"
        assert len(list((home / "swarms").glob("club-*.pem"))) == 1
        assert (home / "known_swarms").read_text().startswith("club ")
