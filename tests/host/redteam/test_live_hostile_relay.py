"""A relay that lies, as a process of its own, between nodes that sign and check as always.

It drops, delays, reorders, repeats, changes and forges messages and answers, and tells each node another swarm. No node
admits what another did not say, blames nobody for it, and goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import hostile_relay
import pytest
from test_network import free_port, until
from test_transports import Node

pytestmark = pytest.mark.network
ROUNDS = 12


class Nodes(NamedTuple):
    ada: Node
    bob: Node
    eve: Node
    """In another swarm."""


@contextmanager
def behind(mode: str) -> Iterator[Nodes]:
    """Three nodes, each of which knows one address of the relay alone."""
    ports = [free_port() for _ in range(3)]
    command = [sys.executable, str(Path(hostile_relay.__file__)), mode, *map(str, ports)]
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        swarms = ("lagoon", "lagoon", "reef")
        made = [
            stack.enter_context(closing(Node({"connect": [f"127.0.0.1:{port}"], "name": swarm})))
            for port, swarm in zip(ports, swarms, strict=True)
        ]
        yield Nodes(*made)


def told(node: Node, rounds: int = ROUNDS) -> dict[int, tuple[str, ...]]:
    """What a node shares, by its rounds: one rollout after another."""
    said = {}
    for _ in range(rounds):
        one = node.rollout((f"{node.identity.name} {node.round}", "b"))
        said[one.round] = tuple(completion.text for completion in one.completions)
        node.share([one])
        time.sleep(0.05)
    return said


def heard(node: Node, other: Node) -> dict[int, tuple[str, ...]]:
    node.got_from(other)
    found = [scored.rollout for scored in node.got if scored.rollout.node == other.identity.name]
    assert len({rollout.round for rollout in found}) == len(found), "nothing counts twice"
    return {rollout.round: tuple(completion.text for completion in rollout.completions) for rollout in found}


def offences(node: Node) -> Any:
    return sum(peer.offences for peer in node.admission.peers.by_key.values())


@pytest.mark.parametrize("mode", ["honest", "delay", "reorder", "replay", "forge"])
def test_what_arrives_is_what_was_said_once_and_nobody_is_blamed(mode: str) -> None:
    with behind(mode) as (ada, bob, _):
        until(lambda: ada.status()["neighbours"] and bob.status()["neighbours"])
        said = told(ada) | {}
        until(lambda: heard(bob, ada) == said)
        time.sleep(0.5)  # what is forged or repeated comes behind it
        assert heard(bob, ada) == said
        assert {scored.rollout.node for scored in bob.got} == {ada.identity.name}
        refused = bob.admission.refused + bob.dropped
        assert offences(bob) == 0, refused
        assert bool(refused) == (mode in ("replay", "forge")), refused
        assert (ada.faults, bob.faults) == (0, 0)
        answer = told(bob, 1)
        until(lambda: heard(ada, bob) == answer)  # after all of that both are heard


def test_what_is_dropped_is_missing_and_the_rest_arrives() -> None:
    with behind("drop") as (ada, bob, _):
        said: dict[int, tuple[str, ...]] = {}

        def more() -> bool:
            said.update(told(ada, 4))
            return len(heard(bob, ada)) >= ROUNDS

        until(more)
        assert heard(bob, ada).items() <= said.items()
        assert offences(bob) == 0
        assert (ada.faults, bob.faults) == (0, 0)


def test_who_is_told_another_swarm_learns_nothing_and_says_that_it_is_alone() -> None:
    with behind("swap") as (ada, bob, eve):

        def all_spoke() -> bool:
            for node in (ada, bob, eve):
                told(node, 1)
            return bool(bob.admission.refused or bob.dropped or eve.admission.refused or eve.dropped) or bob.round > 60

        until(all_spoke)
        for node in (ada, bob, eve):
            told(node, 5)
            assert list(node.receive()) == []
            assert offences(node) == 0
            assert node.faults == 0
        assert set(bob.admission.refused) <= {"swarm", "signature"}
        assert bob.status()["silo"] == (bob.status()["peers"] == 0)
