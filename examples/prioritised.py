"""Prioritised replay (after arXiv 2606.04560): answers of earlier rounds are learned from again, by their advantage.

    shoal run --selection examples/prioritised.py:Prioritised

A node keeps its own and its peers' live rollouts for ten rounds. In place of J rollouts it draws as many answers from
them, each with a probability in proportion to (|A| + 1e-6)^0.5, without replacement within a round; an answer may come
again in another one. Its advantage stays that of the round in which it came. Own rollouts of this round are all in the
batch. What is left out: the paper replays a model's own answers alone, half as many as there are new ones, begins after
20 rounds, and clips the ratio to the likelihood at birth; here peers' weights apply to all that is replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

import shoal
from shoal.protocols import Pool
from shoal.selection.selection import FairSelection, live_first

AGE, ALPHA, LEAST = 10, 0.5, 1e-6
MOST = 512
"""Rollouts that are kept."""


class Prioritised(FairSelection):
    """Draws answers from all live rollouts of the last rounds."""

    def __init__(self, config: shoal.Config) -> None:
        super().__init__(config.selection)
        self.round = 0
        self.kept: list[tuple[int, shoal.Scored]] = []
        """The round in which each came, and the rollout, with its baseline."""

    def choose(self, local: Sequence[shoal.Scored], pool: Pool, I: int, J: int, seed: int) -> list[shoal.Scored]:
        self.round += 1
        self._success.observe(local)
        of_peers = [u for s in pool.candidates() if (u := self._success.with_baseline(s)) is not None]
        pool.remove(of_peers)
        self.keep(of_peers)
        own = live_first(local, I)
        dead = sum(not scored.live for scored in own) if self.config.fill and J else 0
        dead = min(dead, max(0, len(own) - 1))
        size = max((len(scored.rewards) for scored in local), default=0)
        again = self.draw((J + dead) * size, seed)
        if again:
            own = live_first(own, I - dead)
        self.keep([scored for scored in local if scored.live])  # from the next round on
        return own + again

    def keep(self, rollouts: Sequence[shoal.Scored]) -> None:
        fixed = [s if s.baseline is not None else msgspec.structs.replace(s, baseline=s.mean_reward) for s in rollouts]
        self.kept += [(self.round, scored.as_peer()) for scored in fixed]
        self.kept = [(came, scored) for came, scored in self.kept if self.round - came <= AGE][-MOST:]

    def draw(self, n: int, seed: int) -> list[shoal.Scored]:
        """`n` answers, those to one question together."""
        random = Random(seed)
        lots = [
            (random.random() ** (1 / (abs(reward - (s.baseline or 0.0)) + LEAST) ** ALPHA), place, number)
            for place, (_, s) in enumerate(self.kept)
            for number, reward in enumerate(s.rewards)
        ]
        drawn: dict[int, list[int]] = {}
        for _, place, number in sorted(lots, reverse=True)[:n]:
            drawn.setdefault(place, []).append(number)
        return [part(self.kept[place][1], sorted(numbers)) for place, numbers in sorted(drawn.items())]

    def save(self, folder: Path) -> None:
        super().save(folder)
        (folder / "kept.msgpack").write_bytes(msgspec.msgpack.encode((self.round, self.kept)))

    def load(self, folder: Path) -> None:
        super().load(folder)
        form = tuple[int, list[tuple[int, shoal.Scored]]]
        self.round, self.kept = msgspec.msgpack.decode((folder / "kept.msgpack").read_bytes(), type=form)


def part(scored: shoal.Scored, numbers: Sequence[int]) -> shoal.Scored:
    """The rollout with some of its answers, compared with what all were compared with."""
    completions = tuple(scored.rollout.completions[number] for number in numbers)
    rollout = msgspec.structs.replace(scored.rollout, completions=completions)
    return msgspec.structs.replace(scored, rollout=rollout, rewards=tuple(scored.rewards[n] for n in numbers))
