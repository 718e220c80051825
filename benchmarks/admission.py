"""What admission costs: rollouts a second on one core.

    python benchmarks/admission.py [--json]

Up to signature and quota is what a flood costs a node: a message is refused there, or passes. "All but scoring" makes
each question again, on the `paper` suite, as for an honest swarm of 8 nodes; nothing is cached between makers. Messages
have 8 completions and about 10 KB. Medians of five.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence

from stand_ins import LocalExaminer

from shoal.admission.admission import Admission
from shoal.admission.limits import AdmissionLimits
from shoal.config.tasks import TasksConfig
from shoal.identity.keys import Identity
from shoal.rollout import Completion, QuestionId, Rollout
from shoal.tasks import Tasks
from shoal.wire.rollouts import seal

SWARM = "benchmark"
NODES, ROUNDS, SLOTS = 8, 16, 8
ASKED = {"up to signature and quota": 5000, "all but scoring, paper": 1000, "all but scoring, pond": 1000}
CONFIG = AdmissionLimits(max_characters=4096, peer_rate=1e9)


class Unread:
    """A verifier that costs nothing."""

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        return [[0.0] * len(texts) for _, texts in items]


def messages(suite: str) -> list[tuple[str, bytes]]:
    """What an honest swarm sends: made with tasks of their own, so that nothing is in the receiver's cache."""
    tasks = Tasks(TasksConfig(suite=suite))
    sent = []
    for node in [Identity.generate() for _ in range(NODES)]:
        for round in range(ROUNDS):
            for slot, question in enumerate(tasks.draw(SLOTS, SWARM, node.id, round)):
                texts = [Completion.of(f"{node.name} {round} {slot} {n} " + "so it is " * 130) for n in range(8)]
                rollout = Rollout(question.id, question.hash, tuple(texts), node.name, round, slot)
                sent.append((node.id, seal(rollout, node, SWARM, time.time())))
    return sent


def rate(work: Callable[[Admission, list[tuple[str, bytes]]], None], suite: str) -> float:
    """Messages a second, the median of five."""
    sent = messages(suite)
    rates = []
    for _ in range(5):
        tasks = Tasks(TasksConfig(suite=suite))
        admission = Admission(SWARM, LocalExaminer(tasks, Unread()), CONFIG, num_generations=8)
        start = time.perf_counter()
        work(admission, sent)
        rates.append(len(sent) / (time.perf_counter() - start))
    return statistics.median(rates)


def attribute(admission: Admission, sent: list[tuple[str, bytes]]) -> None:
    for id, data in sent:
        assert admission.attribute(id, data) is not None, admission.refused


def everything(admission: Admission, sent: list[tuple[str, bytes]]) -> None:
    for start in range(0, len(sent), 64):
        admission.admit(sent[start : start + 64])
    assert admission.admitted == len(sent), admission.refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = {
        "up to signature and quota": rate(attribute, "paper"),
        "all but scoring, paper": rate(everything, "paper"),
        "all but scoring, pond": rate(everything, "pond"),
    }
    if args.json:
        print(json.dumps({name: value / ASKED[name] for name, value in figures.items()}))
        return
    print(f"message of {len(messages('paper')[0][1])} bytes")
    for name, value in figures.items():
        print(f"{name:30} {value:8.0f} rollouts/s   at least {ASKED[name]}")


if __name__ == "__main__":
    main()
