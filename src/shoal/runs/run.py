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
from typing import Any

from shoal.evaluation.judges import BY_SELF
from shoal.evaluation.pass_at_k import evaluate
from shoal.node import Node, RoundResult
from shoal.rollout import seed_of
from shoal.runs.build import Nodes
from shoal.runs.folder import RunFolder, ensure_space
from shoal.runs.metrics import round_metrics
from shoal.runs.models import number, shards
from shoal.runs.record import Record, Watcher


class Run:
    """Rounds of `nodes`, with evaluations, a record and checkpoints.

    with closing(Nodes(config)) as nodes:
        Run(nodes, folder, watch).go(threading.Event())
    """

    def __init__(self, nodes: Nodes, folder: RunFolder | None, watch: Watcher, checkpoint: Path | None = None) -> None:
        """`folder`: None on all ranks but rank zero. `checkpoint`: from which `nodes` were built."""
        self.nodes = nodes
        self.config = nodes.config
        self.folder = folder
        self.record = Record(nodes, folder, watch)
        self._checkpointed = nodes.round if checkpoint else -1
        """The last round with a checkpoint."""
        if folder is not None:  # for the old checkpoint and the new one
            ensure_space(folder.path, nodes.checkpoint_bytes * (1 if checkpoint else 2))

    def go(self, stop: threading.Event) -> None:
        """Runs the rounds that are left. Once `stop` is set it ends after the current round, with a checkpoint."""
        config, nodes = self.config, self.nodes
        if nodes.round == 0 and self._checkpointed < 0:  # else the folder has the figures of round 0
            self.record.watch.status("asking held-out questions")
            now = time.time()
            pairs = zip(nodes, self._evaluate(), strict=True)
            self.record.write([{"round": 0, "node": n.name, "time": now, **figures} for n, figures in pairs], [])
            if config.checkpoint_every:
                self._checkpoint()
        while nodes.round < config.rounds and not nodes.ranks.any(stop.is_set()):
            self._round()
            if config.checkpoint_every and nodes.round % config.checkpoint_every == 0:
                self._checkpoint()
        if config.checkpoint_every:
            self._checkpoint()
        elif self.folder is not None:
            self.folder.flush()

    def _round(self) -> None:
        nodes, config = self.nodes, self.config
        nodes.each([node.act for node in nodes])
        results = nodes.each([node.learn for node in nodes])
        rows = [
            round_metrics(node, result) | self._reward_parts(result)
            for node, result in zip(nodes, results, strict=True)
        ]
        every = config.evaluation.every
        if nodes.round == config.rounds or (every and nodes.round % every == 0):
            rows = [row | figures for row, figures in zip(rows, self._evaluate(), strict=True)]
        if nodes.member and nodes.member.judges:
            [node] = nodes
            seed = seed_of(config.seed, node.name, node.round, "judge")
            rows = [rows[0] | nodes.member.judges.ask(node.policy, node.round, seed)]
        self.record.note(results)
        self.record.write(rows, results)

    def _evaluate(self) -> list[dict[str, Any]]:
        return self.nodes.each([partial(self._evaluate_node, node) for node in self.nodes])

    def _evaluate_node(self, node: Node) -> dict[str, Any]:
        """Held-out pass@1, in all and by task."""
        if not self.nodes.is_evaluated(node):
            return {}
        seed = seed_of(self.config.seed, node.name, node.round, "evaluate")
        samples = number(self.config.evaluation.samples)
        result = evaluate(node.policy, self.nodes.verifier, self.nodes.held_out, samples, seed)
        by_task = {f"eval/pass@1/{task}": result.pass_at(1, task).value for task in result.correct}
        return {"eval/by": BY_SELF, "eval/pass@1": result.pass_at(1).value, **by_task}

    def _reward_parts(self, result: RoundResult) -> dict[str, Any]:
        """The mean of each of several rewards over a node's own rollouts."""
        items = [(scored.question, [c.text for c in scored.rollout.completions]) for scored in result.local]
        parts = self.nodes.rewards.means(items) if self.nodes.rewards else {}
        return {f"reward/local/{name}": value for name, value in parts.items()}

    def _checkpoint(self) -> None:
        """Keeps the state after this round, unless it is kept already."""
        nodes = self.nodes
        if self.folder is not None:
            self.folder.checkpoint(nodes.round, nodes.save)
        elif shards(self.config, nodes.ranks) and self._checkpointed != nodes.round:
            for node in nodes:  # hands its shards to rank zero, which writes
                node.policy.save(Path(os.devnull))
                if node.learner:
                    node.learner.save(Path(os.devnull))
        self._checkpointed = nodes.round
