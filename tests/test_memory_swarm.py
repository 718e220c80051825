"""The swarm within one process."""

from __future__ import annotations

from fakes import question, rollout

from shoal.rollout import Completion, FinishReason, Part, Rollout
from shoal.swarm.memory import MemorySwarm


def test_everybody_else_gets_it_once_and_in_order() -> None:
    swarm = MemorySwarm()
    ada, bob, eve = (swarm.join(name) for name in ("ada", "bob", "eve"))
    first, second = rollout(question(1), node="ada"), rollout(question(2), node="ada")
    ada.share([first])
    ada.share([second])
    bob.share([rollout(node="bob")])
    assert ada.receive() == [rollout(node="bob")]
    assert bob.receive() == [first, second]
    assert eve.receive() == [first, second, rollout(node="bob")]
    assert ada.receive() == bob.receive() == eve.receive() == []


def test_alone_and_late() -> None:
    swarm = MemorySwarm()
    ada = swarm.join("ada")
    ada.share([rollout(node="ada")])
    assert ada.receive() == []
    bob = swarm.join("bob")
    assert bob.receive() == []
    ada.share([])
    assert bob.receive() == []


def test_text_alone_crosses() -> None:
    swarm = MemorySwarm()
    ada, bob = swarm.join("ada"), swarm.join("bob")
    own = Completion((Part("4"),), FinishReason.length, (52, 1))
    ada.share([Rollout(question(1).id, "h", (own,), "ada", 1)])
    [received] = bob.receive()
    assert received.completions == (Completion.of("4", "length"),)
    assert own.token_ids == (52, 1)
