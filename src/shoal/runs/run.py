"""The rounds of a run: all nodes of the process answer and share, then all learn.

The nodes of one process act in step, as in the paper's controlled experiment. This makes a run repeatable; a `Node`
itself waits for nobody.
"""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shoal.node import RoundResult
from shoal.rollout import seed_of
from shoal.runs.build import Nodes
from shoal.runs.disk import ensure_space
from shoal.runs.folder import RunFolder, checkpoints, read_metrics
from shoal.runs.held_out import HeldOut
from shoal.runs.metrics import round_metrics
from shoal.runs.record import Record
from shoal.runs.trackers import Tracker
from shoal.runs.watcher import Watcher

FLUSHED_EVERY: Final = 10.0
"""Seconds after which what was answered is on disk, for whoever reads the folder meanwhile."""


class Run:
    """Rounds of `nodes`, with evaluations, a record and checkpoints.

        with closing(Nodes(config)) as nodes:
            Run(nodes, folder, watch).go(threading.Event())

    `runs.session.execute` adds the folder.
    """

    def __init__(
        self,
        nodes: Nodes,
        folder: RunFolder | None,
        watch: Watcher,
        checkpoint: Path | None = None,
        trackers: Mapping[str, Tracker] | None = None,
    ) -> None:
        """`folder`: None on all ranks but rank zero. `checkpoint`: from which `nodes` were built."""
        self.nodes = nodes
        self.config = nodes.config
        self.folder = folder
        self.record = Record(nodes, folder, watch, trackers or {})
        self.held_out = HeldOut(nodes, self.record)
        self._flushed = time.monotonic()
        self._saved = 0.0
        """Seconds of a checkpoint since the last round."""
        self._checkpointed = nodes.round if checkpoint else -1
        """The last round with a checkpoint."""
        if folder is not None and self.config.checkpoint_every:  # for two checkpoints, with those that are there
            ensure_space(folder.path, nodes.checkpoint_bytes * (2 - min(2, len(checkpoints(folder.path)))))

    def go(self, stop: threading.Event, ends: bool = False) -> None:
        """Runs the rounds that are left. Once `stop` is set it ends after the current round, with a checkpoint. If it
        `ends`, it sets `stop` itself where nothing can be learned.

        A held-out evaluation ends at once then. A resumed run begins with it, and gets the same figures.
        """
        config, nodes = self.config, self.nodes
        if nodes.ranks.any(self.held_out.is_missing()) and not self._evaluate_late(stop):
            return
        while nodes.round < config.rounds and not nodes.ranks.any(stop.is_set()):
            self._round(stop)
            if ends and self.record.diagnosis.hopeless:
                stop.set()
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
        return self.nodes.round >= self.config.rounds and not self.held_out.is_missing()

    def _round(self, stop: threading.Event) -> None:
        nodes, config = self.nodes, self.config
        nodes.each([node.act for node in nodes])
        results = nodes.each([node.learn for node in nodes])
        rows = [
            round_metrics(node, result) | self._reward_parts(result)
            for node, result in zip(nodes, results, strict=True)
        ]
        if self._saved:
            rows = [row | {"seconds/checkpoint": self._saved} for row in rows]
            self._saved = 0.0
        if self.held_out.is_due():
            figures = self.held_out.ask(stop) or [{} for _ in rows]
            rows = [row | of_node for row, of_node in zip(rows, figures, strict=True)]
        if nodes.member and nodes.member.judges:
            [node] = nodes
            seed = seed_of(config.seed, node.name, node.round, "judge")
            own = [scored.question for scored in results[0].local]
            rows = [rows[0] | nodes.member.judges.ask(node.policy, node.round, seed, own)]
        self.record.note(results)
        nodes.check_scoring()
        self.record.write(rows, results)

    def _evaluate_late(self, stop: threading.Event) -> bool:
        """Runs an evaluation that an earlier stop cut short. Returns False if it is stopped again."""
        nodes, now = self.nodes, time.time()
        found = self.held_out.ask(stop)
        if found is None:
            return False
        figures = {node.name: row for node, row in zip(nodes, found, strict=True)}
        if self._checkpointed < 0:
            self.record.write([{"round": 0, "node": name, "time": now, **row} for name, row in figures.items()], [])
            if self._is_checkpoint_due():
                self._checkpoint()
        elif self.folder is not None:
            rows = read_metrics(self.folder.path)
            self.folder.rewrite_metrics(
                [row | figures.get(row["node"], {}) if row["round"] == nodes.round else row for row in rows]
            )
            self.record.report([{"node": name, **row} for name, row in figures.items()], late=True)
        return True

    def _reward_parts(self, result: RoundResult) -> dict[str, Any]:
        """The mean of each of several rewards over a node's own rollouts."""
        items = [(scored.question, [c.answer for c in scored.rollout.completions]) for scored in result.local]
        parts = self.nodes.rewards.means(items) if self.nodes.rewards else {}
        return {f"reward/local/{name}": value for name, value in parts.items()}

    def _is_checkpoint_due(self) -> bool:
        """Whether there is a checkpoint after this round."""
        every = self.config.checkpoint_every
        return every > 0 and self.nodes.round % every == 0

    def _checkpoint(self) -> None:
        """Keeps the state after this round, unless it is kept already."""
        nodes = self.nodes
        if self._checkpointed == nodes.round:
            if self.folder is not None:
                self.folder.flush()
            return
        start = time.monotonic()
        self.record.watch.status(f"writing a checkpoint ({nodes.checkpoint_bytes / 1e9:.2f} GB)")
        if self.folder is not None:
            self.folder.checkpoint(nodes.round, nodes.save)
        self.record.watch.status("")
        self._checkpointed, self._flushed = nodes.round, time.monotonic()
        self._saved += self._flushed - start
