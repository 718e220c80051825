"""After HACPO (arXiv 2603.02604): peers' rollouts count by their makers' ability and by their likelihood here.

    shoal run --selection examples/hacpo.py:Hacpo --peer-weight examples/hacpo.py:Likely

P is the mean reward of an agent's last rollouts, k this node, j a maker. Equations (5) and (6): the baseline of j's
answers is their mean times P_k / P_j, what this node would have got. Their advantages count P_j / P_k. The importance
is s = (pi / mu)^(1 / tokens), and the loss gets s times s^alpha without gradient. Below 1 - delta + m step, in
optimizer step m of the update, an answer counts nothing; above 1 it counts as 1.

What is left out: agents answer the same questions there, so that a baseline has the answers of all; here each question
has one maker. Nobody's log-probabilities are believed here, so mu is this node's estimate, and what is likelier than it
keeps its gradient, which the authors' clip takes away. The loss and the scale of advantages stay those of the settings
(the paper's: --loss-type gspo --scale-rewards group). Constants are those of the authors' code. What shoal limits by
default, a maker's share of the gradient, is not limited.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import torch

import shoal
from shoal.errors import UserError
from shoal.learn.learner import GRPOLearner
from shoal.learn.weights.base import PeerTokens, Weight
from shoal.policy.language import LanguagePolicy
from shoal.protocols import Policy, Pool, UpdateResult
from shoal.selection.selection import FairSelection

WINDOW = 20
"""Rollouts of an agent that make its ability: five rounds of four."""
LEAST, MOST = 0.1, 10.0
"""Of the ratio of two abilities."""


class Hacpo(FairSelection):
    """Gives peers' rollouts the baseline and the weight of HACPO."""

    def __init__(self, config: shoal.Config) -> None:
        super().__init__(config.selection)
        self.recent: dict[str, list[float]] = {}
        """Mean rewards of the last rollouts of this node ("") and of each maker, live or not."""
        self.heard: set[tuple[str, int, int]] = set()

    def choose(self, local: Sequence[shoal.Scored], pool: Pool, I: int, J: int, seed: int) -> list[shoal.Scored]:
        held = {(s.rollout.node, s.rollout.round, s.rollout.slot): s for s in pool.candidates()}
        new = [("", scored) for scored in local]
        new += [(scored.rollout.node, scored) for place, scored in held.items() if place not in self.heard]
        for agent, scored in new:
            self.recent[agent] = [*self.recent.pop(agent, []), scored.mean_reward][-WINDOW:]
        for agent in [agent for agent in self.recent if agent][:-256]:  # those heard longest ago
            del self.recent[agent]
        self.heard = set(held)
        batch = super().choose(local, pool, I, J, seed)
        return [self.weighed(scored) if scored.from_peer else scored for scored in batch]

    def ratio(self, maker: str) -> float:
        """P_j / P_k; 1 where one of them is not known."""
        able, own = self.recent.get(maker), self.recent.get("")
        if not able or not own:
            return 1.0
        return min(max(max(fmean(able), 1e-8) / max(fmean(own), 1e-8), LEAST), MOST)

    def weighed(self, scored: shoal.Scored) -> shoal.Scored:
        ratio = self.ratio(scored.rollout.node)
        baseline = scored.baseline if scored.baseline is not None else scored.mean_reward / ratio
        if baseline > 1:  # no answer could be above it
            baseline = scored.mean_reward
        return msgspec.structs.replace(scored, baseline=baseline, weight=ratio)

    def save(self, folder: Path) -> None:
        super().save(folder)
        (folder / "hacpo.msgpack").write_bytes(msgspec.msgpack.encode((self.recent, sorted(self.heard))))

    def load(self, folder: Path) -> None:
        super().load(folder)
        form = tuple[dict[str, list[float]], set[tuple[str, int, int]]]
        self.recent, self.heard = msgspec.msgpack.decode((folder / "hacpo.msgpack").read_bytes(), type=form)


class Likely(Weight):
    """s^(1 + alpha), and 0 below the clip."""

    def __init__(
        self,
        alpha: float = 1.0,
        delta: float = 0.2,
        step: float = 0.025,
        baseline_shift: float = 0.0,
        limit: float = 0.0,
    ) -> None:
        super().__init__(baseline_shift, limit)
        self.alpha, self.delta, self.step = alpha, delta, step
        self.steps = 0
        """m: optimizer steps of this update so far."""

    def weights(self, tokens: PeerTokens) -> torch.Tensor:
        s_T = torch.exp(-tokens.gap_T).clamp(max=1)
        least = min(1.0, 1 - self.delta + self.steps * self.step)
        return torch.where(s_T < least, 0.0, s_T ** (1 + self.alpha))


class Stepwise(GRPOLearner):
    """Tells the weight how many steps an update has made."""

    peer_weight: Any

    def update(self, batch: Sequence[shoal.Scored], seed: int = 0) -> UpdateResult:
        self.peer_weight.steps = 0
        return super().update(batch, seed)

    def add_gradient(self, *arguments: Any) -> None:
        super().add_gradient(*arguments)
        self.peer_weight.steps += 1


def learner(policy: Policy, config: shoal.Config) -> Stepwise:
    """Needed with several optimizer steps in an update (--num-iterations); with one, m is 0."""
    if not isinstance(policy, LanguagePolicy) or policy.ranks.size > 1:
        raise UserError("this learner trains language models in one process")
    return Stepwise(policy, config.learner, config.peers)
