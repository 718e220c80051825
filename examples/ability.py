"""Selections that know how able each maker is: at each task, by rewards that this node gave itself.

    shoal run --selection examples/ability.py:Able
    shoal run --selection examples/ability.py:Rescue

Nothing is sent for it. A node scores all that its peers share, so it knows how often each of them is right. `Able`
lets a maker teach a task less where it is less able than this node. `Rescue` takes peers' rollouts only of tasks that
this node seldom gets right itself, as in Mutual-RL (arXiv 2605.07244).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

import shoal
from shoal.protocols import Pool
from shoal.selection.selection import FairSelection, OwnSuccess

MAKERS = 256
"""Makers that are remembered."""
RARE = 0.25
"""`Rescue`: a task is rarely right below this rate."""
Task = tuple[str, str]


class Knows(FairSelection):
    """Shoal's selection, with the success rates of this node ("") and of each maker."""

    def __init__(self, config: shoal.Config) -> None:
        super().__init__(config.selection)
        self.rates: dict[str, OwnSuccess] = {}
        self.heard: set[tuple[str, int, int]] = set()
        """What the pool held last: each rollout counts once, live or not."""

    def choose(self, local: Sequence[shoal.Scored], pool: Pool, I: int, J: int, seed: int) -> list[shoal.Scored]:
        self.hear(local, pool)
        return super().choose(local, pool, I, J, seed)

    def hear(self, local: Sequence[shoal.Scored], pool: Pool) -> None:
        """Counts the rollouts of a round."""
        self.rates.setdefault("", OwnSuccess()).observe(local)
        held = {(s.rollout.node, s.rollout.round, s.rollout.slot): s for s in pool.candidates()}
        for place, scored in held.items():
            if place not in self.heard:
                rates = self.rates.pop(scored.rollout.node, OwnSuccess())
                rates.observe([scored])
                self.rates[scored.rollout.node] = rates  # the last heard stands last
        for maker in [name for name in self.rates if name][:-MAKERS]:
            del self.rates[maker]
        self.heard = set(held)

    def rate(self, maker: str, task: Task) -> float:
        """The success rate of `maker`, in (0, 1): half a success in one attempt is added to what was seen."""
        known = self.rates.get(maker, OwnSuccess())
        rate, count = known.rates.get(task, (0.0, 0))
        return (rate * count + 0.5) / (count + 1)

    def save(self, folder: Path) -> None:
        super().save(folder)
        state = msgspec.msgpack.encode((self.rates, sorted(self.heard)))
        (folder / "rates.msgpack").write_bytes(state)

    def load(self, folder: Path) -> None:
        super().load(folder)
        form = tuple[dict[str, OwnSuccess], set[tuple[str, int, int]]]
        self.rates, self.heard = msgspec.msgpack.decode((folder / "rates.msgpack").read_bytes(), type=form)


class Able(Knows):
    """A peer's rollout counts min(1, its maker's success rate / this node's) at its task."""

    def choose(self, local: Sequence[shoal.Scored], pool: Pool, I: int, J: int, seed: int) -> list[shoal.Scored]:
        batch = super().choose(local, pool, I, J, seed)
        return [msgspec.structs.replace(s, weight=self.weight(s)) if s.from_peer else s for s in batch]

    def weight(self, scored: shoal.Scored) -> float:
        task = task_of(scored.question)
        return min(1.0, self.rate(scored.rollout.node, task) / self.rate("", task))


class Rescue(Knows):
    """Peers' rollouts only of tasks that this node seldom gets right."""

    def choose_of_peers(self, candidates: Sequence[shoal.Scored], n: int, seed: int) -> list[shoal.Scored]:
        rare = [scored for scored in candidates if self.rate("", task_of(scored.question)) < RARE]
        return super().choose_of_peers(rare, n, seed)


def task_of(question: shoal.Question) -> Task:
    return question.id.task, question.id.config
