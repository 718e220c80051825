"""Writes a round's results to the run's folder and reports them to the watcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from shoal.node import RoundResult
from shoal.runs.build import Nodes
from shoal.runs.folder import RunFolder
from shoal.runs.metrics import learned_rows, live_in_pool, rollout_rows
from shoal.runs.tables import LEARNED, ROLLOUTS


class Watcher(Protocol):
    """Hears how a run goes: a display, or nothing."""

    def say(self, text: str) -> None:
        """A line that stays."""
        ...

    def status(self, text: str) -> None:
        """What is being done now; empty if that is over."""
        ...

    def note(self, text: str) -> None:
        """A warning; empty if there is none."""
        ...

    def update(self, rows: Sequence[Mapping[str, Any]], round: int) -> None:
        """The metrics of a round, one row for each node."""
        ...

    def panel(self, lines: Sequence[str]) -> None:
        """The state of the swarm, in a few lines."""
        ...


class Record:
    """The run's folder and its watcher."""

    def __init__(self, nodes: Nodes, folder: RunFolder | None, watch: Watcher) -> None:
        self.nodes = nodes
        self.folder = folder
        self.watch = watch

    def write(self, rows: Sequence[Mapping[str, Any]], results: Sequence[RoundResult]) -> None:
        """Takes the metrics of a round and its results, one of each for each node; none of either in round 0."""
        round = self.nodes.round
        if self.folder is not None:
            self.folder.log(rows)
            self.folder.save(ROLLOUTS, round, [row for result in results for row in rollout_rows(result)])
            learned = [row for pair in zip(self.nodes, results, strict=False) for row in learned_rows(*pair)]
            self.folder.save(LEARNED, round, learned)
            if self.nodes.member and self.nodes.member.tell:
                self.nodes.member.tell(rows[0], learned)
            if results and self.nodes.member and self.nodes.member.need:
                [node] = self.nodes
                self.nodes.member.need(live_in_pool(node), node.J)
        self.watch.update(rows, round)

    def note(self, results: Sequence[RoundResult]) -> None:
        """Reports warnings."""
        member = self.nodes.member
        notes = [warning for warning in (self.nodes.scoring.trouble, self.nodes.advice) if warning]
        notes += [member.judges.trouble] if member and member.judges and member.judges.trouble else []
        notes += [f"{n.name} gives fewer rollouts: {trouble}" for n in self.nodes if (trouble := n.policy.trouble)]
        pairs = zip(self.nodes, results, strict=True)
        short = [node.J for node, result in pairs if node.learner and len(result.foreign) < node.J]
        if short and (len(self.nodes.nodes) > 1 or member):
            notes.append(f"a pool has fewer than J = {max(short)} live rollouts: the round uses what there is")
        self.watch.note("; ".join(notes))
