"""The rounds of a run: all nodes of the process answer and share, then all learn.

The nodes of one process act in step, as in the paper's controlled experiment. This makes a run repeatable; a `Node`
itself waits for nobody.
"""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from shoal.errors import Stopped, UserError
from shoal.evaluation.judges import BY_SELF
from shoal.evaluation.pass_at_k import evaluate
from shoal.node import Node, RoundResult
from shoal.protocols import Hear
from shoal.rollout import seed_of
from shoal.runs.atomic import ensure_space
from shoal.runs.build import Nodes
from shoal.runs.folder import RunFolder
from shoal.runs.metrics import round_metrics
from shoal.runs.models import number, shards
from shoal.runs.record import Record, Watcher
from shoal.runs.saving import Saving
from shoal.runs.transcripts import chosen, transcript_rows

Evaluated = tuple[dict[str, Any], list[dict[str, Any]]]
"""A node's held-out figures, and the rows of its transcripts."""
SAID_EVERY: Final = 0.25
"""Seconds between two reports of an evaluation, at least."""
FLUSHED_EVERY: Final = 10.0
"""Seconds after which what was answered is on disk, for whoever reads the folder meanwhile."""


class Run:
    """Rounds of `nodes`, with evaluations, a record and checkpoints.

        with closing(Nodes(config)) as nodes:
            Run(nodes, folder, watch).go(threading.Event())

    `runs.session.execute` adds the folder and the curves.
    """

    def __init__(self, nodes: Nodes, folder: RunFolder | None, watch: Watcher, checkpoint: Path | None = None) -> None:
        """`folder`: None on all ranks but rank zero. `checkpoint`: from which `nodes` were built."""
        self.nodes = nodes
        self.config = nodes.config
        self.folder = folder
        self.record = Record(nodes, folder, watch)
        self.saving = Saving(self.config.checkpoint_every, nodes.checkpoint_bytes)
        self._flushed = time.monotonic()
        self._checkpointed = nodes.round if checkpoint else -1
        """The last round with a checkpoint."""
        if folder is not None:  # for the old checkpoint and the new one
            ensure_space(folder.path, nodes.checkpoint_bytes * (1 if checkpoint else 2))

    def go(self, stop: threading.Event) -> None:
        """Runs the rounds that are left. Once `stop` is set it ends after the current round, with a checkpoint.

        A held-out evaluation ends at once then. A resumed run begins with it, and gets the same figures.
        """
        config, nodes = self.config, self.nodes
        if nodes.ranks.any(self._lacks_evaluation()) and not self._evaluate_late(stop):
            return
        while nodes.round < config.rounds and not nodes.ranks.any(stop.is_set()):
            self._round(stop)
            if self._is_checkpoint_due():
                self._checkpoint()
            elif self.folder is not None and time.monotonic() > self._flushed + FLUSHED_EVERY:
                self.folder.flush()
                self._flushed = time.monotonic()
        if config.checkpoint_every:
            self._checkpoint()
        elif self.folder is not None:
            self.folder.flush()

    @property
    def finished(self) -> bool:
        """Whether all rounds are done, with the last evaluation."""
        return self.nodes.round >= self.config.rounds and not self._lacks_evaluation()

    def _round(self, stop: threading.Event) -> None:
        nodes, config = self.nodes, self.config
        nodes.each([node.act for node in nodes])
        results = nodes.each([node.learn for node in nodes])
        rows = [
            round_metrics(node, result) | self._reward_parts(result)
            for node, result in zip(nodes, results, strict=True)
        ]
        if saving := self.saving.untold():
            rows = [row | {"seconds/checkpoint": saving} for row in rows]
        if self._is_due():
            figures = self._evaluate(stop) or [{} for _ in rows]
            rows = [row | of_node for row, of_node in zip(rows, figures, strict=True)]
        if nodes.member and nodes.member.judges:
            [node] = nodes
            seed = seed_of(config.seed, node.name, node.round, "judge")
            rows = [rows[0] | nodes.member.judges.ask(node.policy, node.round, seed)]
        self.record.note(results)
        self._check_scoring()
        self.record.write(rows, results)

    def _is_due(self) -> bool:
        """Whether this round ends with held-out questions."""
        every, round = self.config.evaluation.every, self.nodes.round
        return round in (0, self.config.rounds) or bool(every and round % every == 0)

    def _lacks_evaluation(self) -> bool:
        """Whether the current round's evaluation is due and not in the folder: in a new run, and in one that was
        stopped while it asked."""
        if self.folder is None or not self._is_due():
            return False
        rows = [row for row in self.folder.metrics() if row["round"] == self.nodes.round]
        return not any("eval/pass@1" in row for row in rows)

    def _evaluate_late(self, stop: threading.Event) -> bool:
        """Runs an evaluation that an earlier stop cut short. Returns False if it is stopped again."""
        nodes, now = self.nodes, time.time()
        found = self._evaluate(stop)
        if found is None:
            return False
        figures = {node.name: row for node, row in zip(nodes, found, strict=True)}
        if self._checkpointed < 0:
            self.record.write([{"round": 0, "node": name, "time": now, **row} for name, row in figures.items()], [])
            if self._is_checkpoint_due():
                self._checkpoint()
        elif self.folder is not None:
            rows = self.folder.metrics()
            self.folder.rewrite_metrics(
                [row | figures.get(row["node"], {}) if row["round"] == nodes.round else row for row in rows]
            )
        return True

    def _evaluate(self, stop: threading.Event) -> list[dict[str, Any]] | None:
        """Held-out figures of all nodes; None if `stop` was set meanwhile."""
        nodes, answered = self.nodes, dict.fromkeys((node.name for node in self.nodes), 0)
        every = sum(map(len, nodes.held_out.values())) * sum(map(nodes.is_evaluated, nodes))
        start, said = time.monotonic(), 0.0

        def hear(name: str, count: int) -> None:
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
            return self._evaluate_node(node, partial(hear, node.name))

        self.record.watch.status(f"asking held-out questions (0 of {every})")
        try:
            found = nodes.each([partial(ask, node) for node in nodes])
        except Stopped:
            return None
        self._check_scoring()
        self.record.keep_answers([row for _, rows in found for row in rows])
        return [figures | {"seconds/evaluate": time.monotonic() - start} for figures, _ in found]

    def _evaluate_node(self, node: Node, hear: Hear) -> Evaluated:
        """Held-out pass@1, in all and by task, and the answers that are kept."""
        if not self.nodes.is_evaluated(node):
            return {}, []
        seed = seed_of(self.config.seed, node.name, node.round, "evaluate")
        samples = number(self.config.evaluation.samples)
        result = evaluate(node.policy, self.nodes.verifier, self.nodes.held_out, samples, seed, hear)
        by_task = {f"eval/pass@1/{task}": result.pass_at(1, task).value for task in result.correct}
        figures = {"eval/by": BY_SELF, "eval/pass@1": result.pass_at(1).value, "eval/blind": self.nodes.blind}
        return figures | by_task, transcript_rows(node.name, result, chosen(self.nodes.held_out))

    def _check_scoring(self) -> None:
        """Raises `UserError` if every answer since the last call failed to be scored."""
        if self.nodes.ranks.any(self.nodes.failing.all_failed()):
            raise UserError(
                f"no answer could be scored: {self.nodes.scoring.trouble or self.nodes.verifier.trouble}; mend the "
                "scorer, and let it return 0 for an answer that it cannot read"
            )

    def _reward_parts(self, result: RoundResult) -> dict[str, Any]:
        """The mean of each of several rewards over a node's own rollouts."""
        items = [(scored.question, [c.text for c in scored.rollout.completions]) for scored in result.local]
        parts = self.nodes.rewards.means(items) if self.nodes.rewards else {}
        return {f"reward/local/{name}": value for name, value in parts.items()}

    def _is_checkpoint_due(self) -> bool:
        """Whether there is a checkpoint after this round. Rank zero's clock decides."""
        return self.nodes.ranks.broadcast(self.saving.is_due(self.nodes.round))

    def _checkpoint(self) -> None:
        """Keeps the state after this round, unless it is kept already."""
        nodes = self.nodes
        if self._checkpointed == nodes.round:
            if self.folder is not None:
                self.folder.flush()
            return
        if self.saving.is_long:
            self.record.watch.status(f"writing a checkpoint ({nodes.checkpoint_bytes / 1e9:.1f} GB)")
        with self.saving.timed():
            if self.folder is not None:
                self.folder.checkpoint(nodes.round, nodes.save)
            elif shards(self.config, nodes.ranks):
                for node in nodes:  # hands its shards to rank zero, which writes
                    node.policy.save(Path(os.devnull))
                    if node.learner:
                        node.learner.save(Path(os.devnull))
        self.record.watch.status("")
        self._checkpointed, self._flushed = nodes.round, time.monotonic()
