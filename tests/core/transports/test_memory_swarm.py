"""The swarm within one process."""

from __future__ import annotations

from fakes import join, question, rollout

from shoal.rollout import Completion, FinishReason, Part, Rollout
from shoal.transports.memory import MemoryLink, MemorySwarm


def received(link: MemoryLink) -> list[Rollout]:
    return link.receive()


def test_everybody_else_gets_it_once_and_in_order() -> None:
    swarm = MemorySwarm()
    ada, bob, eve = (join(swarm, name) for name in ("ada", "bob", "eve"))
    first, second = rollout(question(1), node="ada"), rollout(question(2), node="ada")
    ada.share([first])
    ada.share([second])
    bob.share([rollout(node="bob")])
    assert received(ada) == [rollout(node="bob")]
    assert received(bob) == [first, second]
    assert received(eve) == [first, second, rollout(node="bob")]
    assert received(ada) == received(bob) == received(eve) == []


def test_alone_and_late() -> None:
    swarm = MemorySwarm()
    ada = join(swarm, "ada")
    ada.share([rollout(node="ada")])
    assert received(ada) == []
    bob = join(swarm, "bob")
    assert received(bob) == []
    ada.share([])
    assert received(bob) == []


def test_text_alone_crosses() -> None:
    swarm = MemorySwarm()
    ada, bob = join(swarm, "ada"), join(swarm, "bob")
    own = Completion((Part("4"),), FinishReason.length, (52, 1))
    ada.share([Rollout(question(1).id, question(1).hash, (own,), "ada", 1)])
    [got] = received(bob)
    assert got.completions == (Completion.of("4", "length"),)
    assert own.token_ids == (52, 1)


def test_a_receiver_takes_no_more_completions_than_it_makes_itself() -> None:
    swarm = MemorySwarm()
    ada, bob = swarm.join("ada", num_generations=3), join(swarm, "bob")
    bob.share([rollout(question(1), answers=list("abcdefgh"), node="bob"), rollout(question(2), answers="ab")])
    assert [len(got.completions) for got in received(ada)] == [3, 2]
    bob.share([rollout(question(1), answers=list("abcdefgh"), node="bob")])
    [got] = ada.receive()
    assert [completion.text for completion in got.completions] == ["a", "b", "c"]
