"""A selection of your own: which rollouts a node sends, and which it learns from.

    shoal run --selection own_selection:Instructive      # in this folder
    python own_selection.py

This one sends the two rollouts of a round from which there is most to learn, and prefers peers' rollouts of tasks
that this node solves half of the time: sampling for learnability (arXiv 2408.15099, arXiv 2502.12272). Neither did
better than shoal's own selection on the tasks of docs/studies, so they are an example and no setting.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean

import shoal
from shoal.protocols import Pool


class Instructive:
    """Rates a task by p (1 - p), where p is this node's mean reward for it."""

    def __init__(self, config: shoal.Config) -> None:
        self.rewards: dict[str, list[float]] = {}

    def to_send(self, local: Sequence[shoal.Scored]) -> list[shoal.Rollout]:
        live_first = sorted(local, key=lambda scored: (not scored.live, abs(scored.mean_reward - 0.5)))
        return [scored.rollout for scored in live_first[:2]]

    def choose(self, local: Sequence[shoal.Scored], pool: Pool, I: int, J: int, seed: int) -> list[shoal.Scored]:
        for scored in local:
            recent = self.rewards.setdefault(scored.question.id.task, [])
            recent.append(scored.mean_reward)
            del recent[:-10]
        live = [scored for scored in pool.candidates() if scored.live]
        random = Random(seed)
        live.sort(key=lambda scored: random.random() ** (1 / self._learnability(scored)), reverse=True)
        peers = live[:J]
        pool.remove(peers)
        return [*local[:I], *(scored.as_peer() for scored in peers)]

    def on_update(self, result: shoal.UpdateResult) -> None: ...

    def save(self, folder: Path) -> None:
        (folder / "instructive.json").write_text(json.dumps(self.rewards))

    def load(self, folder: Path) -> None:
        self.rewards = json.loads((folder / "instructive.json").read_text())

    def _learnability(self, scored: shoal.Scored) -> float:
        p = fmean(self.rewards.get(scored.question.id.task, [0.5]))
        return max(0.05, p * (1 - p))


if __name__ == "__main__":
    result = shoal.run(selection="own_selection:Instructive", rounds=40, progress=True)
    print(result.metrics.groupby("round")["reward/local"].mean())
