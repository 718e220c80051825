"""Asks the nodes of a run held-out questions, says how far that has come, and ends at once when it is stopped.

held_out = HeldOut(nodes, record)
if held_out.is_due():
    figures = held_out.ask(stop)     # a row for each node; None if `stop` was set meanwhile
"""

import threading
import time
from functools import partial
from typing import Any, Final

from shoal.errors import Stopped
from shoal.evaluation.blind import Shares, over_all, shuffled
from shoal.evaluation.pass_at_k import evaluate
from shoal.node import Node
from shoal.protocols import OnProgress
from shoal.rollout import seed_of
from shoal.runs.build import Nodes
from shoal.runs.folder import read_metrics
from shoal.runs.record import Record
from shoal.runs.transcripts import chosen, transcript_rows

Evaluated = tuple[dict[str, Any], list[dict[str, Any]]]
"""A node's held-out figures, and the rows of its transcripts."""
SAID_EVERY: Final = 0.25
"""Seconds between two reports, at least."""


class HeldOut:
    """The evaluations of a run."""

    def __init__(self, nodes: Nodes, record: Record) -> None:
        self.nodes = nodes
        self.record = record

    def is_due(self) -> bool:
        """Whether the current round ends with an evaluation. Without held-out questions none does."""
        if not any(self.nodes.held_out.values()):
            return False
        config, round = self.nodes.config, self.nodes.round
        every = config.evaluation.every
        return round in (0, config.rounds) or bool(every and round % every == 0)

    def is_missing(self) -> bool:
        """Whether it is due and not in the run's folder: in a new run, and in one that was stopped while it asked."""
        folder = self.record.folder
        if folder is None or not self.is_due():
            return False
        rows = [row for row in read_metrics(folder.path) if row["round"] == self.nodes.round]
        return not any("eval/pass@1" in row for row in rows)

    def ask(self, stop: threading.Event) -> list[dict[str, Any]] | None:
        """The held-out figures of all nodes; None if `stop` was set meanwhile. The record keeps some answers."""
        nodes, answered = self.nodes, dict.fromkeys((node.name for node in self.nodes), 0)
        every = sum(map(len, nodes.held_out.values())) * len(answered)
        start, said = time.monotonic(), 0.0

        def on_progress(name: str, count: int) -> None:
            nonlocal said
            if stop.is_set():
                raise Stopped
            answered[name] = count
            if time.monotonic() > said + SAID_EVERY:
                said = time.monotonic()
                self.record.watch.status(f"asking held-out questions ({sum(answered.values())} of {every})")

        def ask(node: Node) -> Evaluated:
            if nodes.ranks.any(stop.is_set()):
                raise Stopped
            return self._ask_node(node, partial(on_progress, node.name))

        self.record.watch.status(f"asking held-out questions (0 of {every})")
        try:
            found = nodes.each([partial(ask, node) for node in nodes])
        except Stopped:
            return None
        nodes.check_scoring()
        self.record.keep_answers([row for _, rows in found for row in rows])
        return [figures | {"seconds/evaluate": time.monotonic() - start} for figures, _ in found]

    def _ask_node(self, node: Node, on_progress: OnProgress) -> Evaluated:
        """Held-out pass@1, in all and by task, and the answers that are kept."""
        nodes = self.nodes
        seed = seed_of(nodes.config.seed, node.name, node.round, "evaluate")
        samples = int(nodes.config.evaluation.samples)
        result = evaluate(node.policy, nodes.verifier, nodes.held_out, samples, seed, on_progress)
        asked = {task: counts for task, counts in result.correct.items() if counts}
        questions = {task: len(counts) for task, counts in asked.items()}
        by_task: Shares = {f"eval/pass@1/{task}": result.pass_at(1, task).value for task in asked}
        by_task |= {f"eval/blind/{task}": nodes.blind[task] for task in asked}
        figures = {"eval/by": "self", "eval/pass@1": result.pass_at(1).value}
        figures["eval/blind"] = over_all(nodes.blind, questions)
        figures["eval/shuffled"] = over_all(shuffled(result, nodes.verifier), questions)
        figures["eval/questions"] = sum(questions.values())
        return figures | by_task, transcript_rows(node.name, result, chosen(nodes.held_out), nodes.tasks.answer)
