"""Stages over a real relay: a critique reaches a node that has the rollouts which it quotes, and one that has not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest
from strangers import SWARM, address, relay
from test_network import until

from shoal.config.settings import Config
from shoal.identity.keys import Identity
from shoal.rollout import Completion, Question, Rollout, Scored
from shoal.runs.join import LearnerConnection
from shoal.tasks import Tasks

pytestmark = pytest.mark.network


@dataclass
class Peer:
    """A node as `shoal join` makes it, whose answers are the test's."""

    place: LearnerConnection
    identity: Identity

    def says(self, question: Question, texts: list[str], slot: int) -> Rollout:
        completions = tuple(map(Completion.of, texts))
        sent = Rollout(question.id, question.hash, completions, self.identity.name, 1, slot)
        self.place.share([sent])
        return sent

    def hears(self, maker: Identity, slot: int) -> Scored:
        found: list[Scored] = []

        def heard() -> bool:
            found.extend(self.place.receive())
            return any((s.rollout.node, s.rollout.slot) == (maker.name, slot) for s in found)

        until(heard)
        return next(s for s in found if (s.rollout.node, s.rollout.slot) == (maker.name, slot))


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    with ExitStack() as stack:
        stack.enter_context(relay(where := address()))
        made = []
        for stages in (["critique"], ["critique"], []):
            config = Config.model_validate(
                {
                    "tasks": {"only": ["chain_sum"], "stages": stages},
                    "round": {"nodes": 1},
                    "network": {"name": SWARM, "connect": [where]},
                }
            )
            identity = Identity.generate()
            made.append(Peer(stack.enter_context(closing(LearnerConnection(config, identity))), identity))
        until(lambda: all(len(peer.place.status()["neighbours"]) == 2 for peer in made))
        yield made


def test_a_critique_crosses_the_network(peers: list[Peer]) -> None:
    ada, bob, cyd = peers
    tasks = Tasks(ada.place.config.tasks)
    [question] = tasks.draw(1, SWARM, ada.identity.id, 1)
    right = tasks.answer(question.id)
    assert right is not None
    sent = ada.says(question, ["no", right], 0)
    assert ada.place.stages is not None
    ada.place.stages.remember(sent, Scored(sent, question, (0.0, 1.0)))  # as its scorer does
    bob.hears(ada.identity, 0)
    cyd.hears(ada.identity, 0)

    assert bob.place.stages is not None
    critique = bob.place.stages.draw(0, (SWARM, bob.identity.id, 1))
    assert critique is not None
    assert critique.id.quotes == (sent.hash,)
    bob.says(critique, ["A, I think", "B"], 0)
    scored = ada.hears(bob.identity, 0)
    assert scored.question == critique
    assert scored.rewards == (0.0, 1.0)
    until(lambda: cyd.place.admission.refused.get("quote") == 1)
