"""One adversary within its rights among four honest peers: it gets its fair share of the gradient, and costs no time.

It sends far more than anybody else, always groups that are live, as long as allowed and as strong as can be. Everything
passes admission. The nodes are guppies with the settings as they stand.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any

import pytest

from shoal.config.settings import Config
from shoal.rollout import Completion, Question, Rollout
from shoal.runs.build import Nodes
from shoal.transports.memory import MemoryLink
from shoal_lab.attacks import right_answer, wrong_answer

EVE = "eve"
SENT = 30
"""Groups that the adversary sends each round."""
ROUNDS = 20
SHAPES: dict[str, tuple[int, int]] = {"half of 64": (64, 32), "pairs": (2, 1), "half of G": (8, 4), "one of G": (8, 1)}
"""Completions in a group of the adversary, and how many of them are right and as long as allowed. Those that are wrong
are as long, except beside a single right one."""


@dataclass
class Found:
    """What came of the rounds of all honest nodes."""

    shares: list[float] = field(default_factory=list)
    """The adversary's share of the foreign gradient, for each round of a node that had any."""
    adversary: float = 0.0
    foreign: float = 0.0
    """Sums of shares of the whole gradient."""
    tokens: list[float] = field(default_factory=list)
    """All that pass through the model in each round of a node: prompts, generated and trained ones."""
    seconds: list[float] = field(default_factory=list)
    """In each round of a node: of generating (by the clock), and processor time of learning."""
    places: int = 0
    held: int = 0
    """Pool places, at the end, of all nodes: of everybody and of the adversary."""


class Eve:
    """Sends groups of one shape about questions of her own."""

    def __init__(self, nodes: Nodes, shape: str) -> None:
        self.tasks, self.shape, self.round = nodes.tasks, shape, 0
        self.tokenizer: Any = nodes.nodes[0].policy.lm.tokenizer  # type: ignore[attr-defined]
        self.longest = int(nodes.config.policy.max_completion_length)
        self.link: MemoryLink = nodes.swarm.join(EVE)

    def share(self) -> None:
        self.round += 1
        questions = self.tasks.draw(SENT, EVE, self.round)
        rollouts = [self._group(question, slot) for slot, question in enumerate(questions)]
        self.link.share([rollout for rollout in rollouts if rollout is not None])
        self.link.receive()

    def _group(self, question: Question, slot: int) -> Rollout | None:
        known = right_answer(self.tasks, question)
        if known is None:
            return None
        size, right = SHAPES[self.shape]
        chance = Random(slot)
        wrong = [wrong_answer(known[0], chance) for _ in range(size - right)]
        texts = [self._long(known[0])] * right + ([self._long(text) for text in wrong] if right > 1 else wrong)
        chance.shuffle(texts)
        if right == 1:  # or the cut to G might leave it out
            texts.sort(key=len, reverse=True)
        return Rollout(question.id, question.hash, tuple(map(Completion.of, texts)), EVE, self.round, slot)

    def _long(self, text: str) -> str:
        """With white space after it, which the verifier strips, as much as fits before the end-of-sequence token."""
        while len(self.tokenizer(text + "\n", add_special_tokens=False).input_ids) < self.longest:
            text += "\n"
        return text


def play(shape: str | None, rounds: int, seed: int = 7, peers: int = 4) -> Found:
    """Rounds of `peers` + 1 honest nodes with the adversary, or with one honest node more in its place."""
    found = Found()
    count = peers + 1 + (shape is None)
    settings = {"seed": seed, "threads": 1, "checkpoint_every": 0, "round": {"nodes": count, "workers": 0}}
    with closing(Nodes(Config.model_validate(settings))) as nodes:
        eve = Eve(nodes, shape) if shape else None
        for _ in range(rounds):
            if eve:
                eve.share()
            for node in nodes:
                node.act()
            for node in nodes.nodes[: peers + 1]:
                start = time.process_time()
                result = node.learn()
                update = result.update
                found.seconds.append(node.seconds["generate"] + time.process_time() - start)
                generated = sum(len(c.token_ids or ()) for s in node.local for c in s.rollout.completions)
                trained = [s for s in result.batch if s.has_signal]
                prompts = [len(node.policy.prompt_ids(s.question)) for s in result.local + trained]  # type: ignore[attr-defined]
                found.tokens.append(sum(prompts) + generated + update.metrics["tokens/trained"])
                pulls = update.gradient_shares
                foreign = sum(pull for maker, pull in pulls.items() if maker != node.name)
                if foreign:
                    found.shares.append(pulls.get(EVE, 0.0) / foreign)
                    found.adversary += pulls.get(EVE, 0.0)
                    found.foreign += foreign
            for node in nodes.nodes[peers + 1 :]:
                node.learn()
        held = [scored.rollout.node for node in nodes for scored in node.pool.candidates()]
        found.places, found.held = len(held), held.count(EVE)
    return found


@pytest.mark.parametrize("shape", ["half of 64", "one of G"])
def test_who_sends_without_end_has_its_fair_share_and_costs_no_time(shape: str) -> None:
    """A fifth and five points. The first rounds, in which the others have next to nothing, are the worst."""
    attacked = play(shape, ROUNDS)
    assert attacked.foreign > 0
    assert attacked.adversary / attacked.foreign <= 0.25
    if shape == "half of 64":  # the most there can be to train on
        honest = play(None, ROUNDS)
        print(f"tokens {median(attacked.tokens)} of {median(honest.tokens)}")
        assert median(attacked.tokens) <= 1.5 * median(honest.tokens)
