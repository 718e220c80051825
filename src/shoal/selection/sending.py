"""Which of its own rollouts a node sends, where it may not send all.

Experience that is chosen by what there is to learn from it teaches more than all of it through the same wire (SUPER,
arXiv 2311.00865, which shares what has the greatest temporal-difference error). Rewards are known to the node that made
a rollout, so it can choose before anything is sent; nobody is told them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from shoal.config.settings import Config
from shoal.rollout import Rollout, Scored

Preference = Literal["first", "live", "learnable"]
FILE = "sharing.json"


class Sharing:
    """What to send: all, or `upload` rollouts a round at most."""

    def __init__(self, upload: int = 0, send: Preference = "learnable") -> None:
        self.upload = upload
        self.send = send
        self._sent = Counter[tuple[str, str]]()
        """How many rollouts of each task have been sent."""

    def choose(self, tried: Sequence[Rollout], score: Callable[[], Sequence[Scored]]) -> list[Rollout]:
        """Those of `tried` that are to be sent. `score` gives them with their rewards, and is asked only where the
        choice goes by these."""
        most = self.upload or len(tried)
        if self.send == "first" or most >= len(tried):
            return list(tried[:most])
        left = list(score())
        chosen: list[Rollout] = []
        while left and len(chosen) < most:
            best = min(left, key=self._rank)  # the first of equals
            left = [scored for scored in left if scored is not best]
            chosen.append(best.rollout)
            self._sent[_task(best)] += 1
        return chosen

    def _rank(self, scored: Scored) -> tuple[float, ...]:
        """The least goes first. Distance from half right is in eighths, so that partial credit does not hide the tasks.
        Of rollouts that are not live those right throughout come first: some take these, too (`keep_solved`)."""
        if not scored.live:
            return 1, -scored.mean_reward
        if self.send == "live":
            return (0,)
        return 0, round(8 * abs(scored.mean_reward - 0.5)), self._sent[_task(scored)]

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps([[*task, count] for task, count in self._sent.items()]))

    def load(self, folder: Path) -> None:
        rows = json.loads((folder / FILE).read_text())
        self._sent = Counter({(task, config): count for task, config, count in rows})


def make_sharing(config: Config) -> Sharing:
    """What the settings say."""
    return Sharing(config.swarm.upload, config.swarm.send)


def _task(scored: Scored) -> tuple[str, str]:
    return scored.question.id.task, scored.question.id.config
