"""Swarm sampling policy optimization in one file: three small models learn from their own answers and each other's.

    python examples/swarm_loop.py

Runs in about a minute on two cores. `shoal.Node` and `shoal.run` add: peers' rollouts in place of zero-variance
ones, strangers on a network, checkpoints, charts, worker processes. The paper is arXiv 2509.08721.
"""

from __future__ import annotations

from random import Random
from statistics import fmean

import shoal

I, J, G, ROUNDS = 4, 4, 8, 30  # own rollouts, peers' rollouts, completions for each question
SUITE = shoal.TasksConfig(suite="pond")


class Node:
    """A model of its own, a pool of what peers shared, and a place in the swarm."""

    def __init__(self, name: str, tasks: shoal.Tasks, verifier: shoal.Verifier, swarm: shoal.MemorySwarm) -> None:
        self.name = name
        self.tasks = tasks
        self.scorer = shoal.Scorer(tasks, verifier)
        self.policy = shoal.LanguagePolicy("guppy", max_completion_length=16)
        self.learner = shoal.GRPOLearner(self.policy, learning_rate=4e-4)
        self.place = swarm.join(name)
        self.pool: list[shoal.Scored] = []
        self.local: list[shoal.Scored] = []

    def act(self, round: int) -> None:
        """Answers own questions, scores the answers, and shares their text."""
        questions = self.tasks.draw(I, self.name, round)
        groups = self.policy.generate(questions, G, seed=hash_of(self.name, round))
        rollouts = [
            shoal.Rollout(question.id, question.hash, completions, self.name, round, slot)
            for slot, (question, completions) in enumerate(zip(questions, groups, strict=True))
        ]
        self.local = self.scorer.score(rollouts)
        self.place.share(rollouts)

    def learn(self, round: int) -> None:
        """Scores what peers shared with its own verifier, and takes a step on I of its own and J of its peers'."""
        self.pool += [scored for scored in self.scorer.score(self.place.receive()) if scored.live]
        random = Random(hash_of(self.name, round))
        peers = random.sample(self.pool, min(J, len(self.pool)))
        self.pool = [scored for scored in self.pool if scored not in peers][-64:]
        self.learner.update(self.local + [scored.as_peer() for scored in peers])


def hash_of(name: str, round: int) -> int:
    return Random(f"{name} {round}").getrandbits(63)


def main() -> None:
    tasks, swarm = shoal.Tasks(SUITE), shoal.MemorySwarm()
    with shoal.Verifier(SUITE) as verifier:
        nodes = [Node(name, tasks, verifier, swarm) for name in ("ada", "bob", "eve")]
        for round in range(1, ROUNDS + 1):
            for node in nodes:
                node.act(round)
            for node in nodes:
                node.learn(round)
            reward = fmean(scored.mean_reward for node in nodes for scored in node.local)
            print(f"round {round:2}  mean reward {reward:.3f}  pools {[len(node.pool) for node in nodes]}")
        question = tasks.draw(1, "an example")[0]
        [[answer]] = nodes[0].policy.generate([question], 1, seed=0)
        print(f"{question.text}\n{answer.text}")


if __name__ == "__main__":
    main()
