"""The rounds of a run: all nodes of the process answer and share, then all learn.

The nodes of one process act in step, as in the paper's controlled experiment. This makes a run repeatable; a `Node`
itself waits for nobody.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.evaluation.judges import BY_SELF
from shoal.evaluation.pass_at_k import evaluate
from shoal.node import Node, RoundResult
from shoal.policy.language import LanguagePolicy
from shoal.protocols import Policy
from shoal.rollout import seed_of
from shoal.runs.atomic import ensure_space
from shoal.runs.build import Nodes
from shoal.runs.folder import RunFolder
from shoal.runs.metrics import round_metrics
from shoal.runs.models import number, shards
from shoal.runs.record import Record, Watcher
from shoal.runs.transcripts import chosen, transcript_rows

Evaluated = tuple[dict[str, Any], list[dict[str, Any]]]
"""A node's held-out figures, and the rows of its transcripts."""


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
            if config.checkpoint_every and nodes.round % config.checkpoint_every == 0:
                self._checkpoint()
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
            if self.config.checkpoint_every:
                self._checkpoint()
        elif self.folder is not None:
            rows = self.folder.metrics()
            self.folder.rewrite_metrics(
                [row | figures.get(row["node"], {}) if row["round"] == nodes.round else row for row in rows]
            )
        return True

    def _evaluate(self, stop: threading.Event) -> list[dict[str, Any]] | None:
        """Held-out figures of all nodes; None if `stop` was set meanwhile. Several ranks do not stop here, because
        all would have to stop at the same token."""
        count = len(self.nodes.nodes)
        said = steps = 0

        def ask(place: int, node: Node) -> Evaluated:
            def on_step(*_: Any) -> None:
                nonlocal said, steps
                steps += 1
                if stop.is_set() and self.nodes.ranks.size == 1:
                    raise _StoppedError
                if (now := int(time.monotonic())) != said:
                    said = now
                    where = f"{count} nodes at once" if self.nodes.workers else f"node {place} of {count}, step {steps}"
                    self.record.watch.status(f"asking held-out questions ({where})")

            on_step()
            with _each_step(node.policy, on_step):
                return self._evaluate_node(node)

        try:
            found = self.nodes.each([partial(ask, place, node) for place, node in enumerate(self.nodes, 1)])
        except _StoppedError:
            return None
        self._check_scoring()
        self.record.keep_answers([row for _, rows in found for row in rows])
        return [figures for figures, _ in found]

    def _evaluate_node(self, node: Node) -> Evaluated:
        """Held-out pass@1, in all and by task, and the answers that are kept."""
        if not self.nodes.is_evaluated(node):
            return {}, []
        seed = seed_of(self.config.seed, node.name, node.round, "evaluate")
        samples = number(self.config.evaluation.samples)
        result = evaluate(node.policy, self.nodes.verifier, self.nodes.held_out, samples, seed)
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


class _StoppedError(Exception):
    """The evaluation was stopped."""


@contextmanager
def _each_step(policy: Policy, on_step: Callable[..., None]) -> Iterator[None]:
    """Calls `on_step` before each pass through a language model of this process. What it raises ends the decoding."""
    if not isinstance(policy, LanguagePolicy):
        yield
        return
    hook = policy.lm.model.base_model.register_forward_pre_hook(on_step)
    try:
        yield
    finally:
        hook.remove()
