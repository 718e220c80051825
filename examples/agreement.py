"""Learners that look at the direction of gradients.

    shoal run --learner examples/agreement.py:agreement
    shoal run --learner examples/agreement.py:gac

`agreement`: what peers' text does for this node's own questions. To first order a small step along a maker's gradient
raises the reward of the node's own rollouts by their inner product. So a maker's gradient counts
min(1, max(0, 1 + a / 0.1)), where a is a running mean of its cosine with the gradient of the node's own rollouts, which
that text has not touched. A maker from whom the node learns loses nothing; one that pulls away from what the node finds
right itself fades out.

`gac`, after GAC (arXiv 2603.01501): where data is stale, gradients of one step and the next point the same way. A
gradient whose cosine with the last one is above a bound is shortened along it until the cosine is at the bound. The
metric `gac/cosine` tells how stale a swarm's data is. Only descriptions of the paper were at hand: the bound of 0.3 is
ours, and what else the paper does is left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import shoal
from shoal.errors import UserError
from shoal.learn.batch import Row
from shoal.learn.learner import Fixed, GRPOLearner, Sums
from shoal.learn.peers import running_mean
from shoal.policy.language import LanguagePolicy
from shoal.protocols import Policy, UpdateResult

FADED = 0.1
"""The cosine against own rollouts at which a maker counts nothing."""
BOUND = 0.3
"""The greatest cosine of a gradient with the last one."""
MAKERS = 256

Gradient = list[torch.Tensor]


class Agreement(GRPOLearner):
    """Each maker counts by how its gradient agrees with that of own rollouts."""

    def __init__(self, policy: LanguagePolicy, config: shoal.Config) -> None:
        super().__init__(policy, config.learner, config.peers)
        self.agreed: dict[str, float] = {}
        """Of each maker the running mean of cosines."""

    def add_gradient(self, rows: list[Row], fixed: Fixed, sums: Sums) -> None:
        of: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            first = row.sequences[0]
            of[first.node if first.from_peer else ""].append(row)
        own = self._gradient(of.pop("", []), fixed, sums)
        total = [part.clone() for part in own]
        for maker, its_rows in of.items():
            found = self._gradient(its_rows, fixed, sums)
            if (near := cosine(own, found)) is not None:
                mean = running_mean(self.agreed.pop(maker, None), near)
                self.agreed[maker] = 0.0 if mean is None else mean
            for part, add in zip(total, found, strict=True):
                part.add_(add, alpha=self.share(maker))
        for maker in [*self.agreed][:-MAKERS]:
            del self.agreed[maker]
        for weight, part in zip(self._weights, total, strict=True):
            weight.grad = part

    def share(self, maker: str) -> float:
        """How much a maker counts, in [0, 1]."""
        return min(1.0, max(0.0, 1 + self.agreed.get(maker, 0.0) / FADED))

    def update(self, batch: Sequence[shoal.Scored], seed: int = 0) -> UpdateResult:
        result = super().update(batch, seed)
        makers = {scored.rollout.node for scored in batch if scored.from_peer}
        if makers:
            result.metrics["agreement/cosine"] = sum(self.agreed.get(m, 0.0) for m in makers) / len(makers)
            result.metrics["agreement/share"] = sum(map(self.share, makers)) / len(makers)
        return result

    @property
    def _weights(self) -> list[torch.nn.Parameter]:
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    def _gradient(self, rows: list[Row], fixed: Fixed, sums: Sums) -> Gradient:
        """The gradient of some rows. The model has none afterwards."""
        super().add_gradient(rows, fixed, sums)
        found = [torch.zeros_like(w) if w.grad is None else w.grad.to_dense() for w in self._weights]
        self.optimizer.zero_grad(set_to_none=True)
        return found

    def save(self, folder: Path) -> None:
        super().save(folder)
        torch.save(self.agreed, folder / "agreement.pt")

    def load(self, folder: Path) -> None:
        super().load(folder)
        self.agreed = torch.load(folder / "agreement.pt", weights_only=True)


class GAC(GRPOLearner):
    """Bounds how far a gradient goes along the last one."""

    def __init__(self, policy: LanguagePolicy, config: shoal.Config) -> None:
        super().__init__(policy, config.learner, config.peers)
        self.last: Gradient = []
        self.cosine: float | None = None
        self.optimizer.register_step_pre_hook(self._align)

    def _align(self, *_: Any) -> None:
        """Before each step of the optimizer."""
        weights = [w for w in self.model.parameters() if w.grad is not None]
        new = [weight.grad.clone() for weight in weights if weight.grad is not None]
        self.cosine = cosine(new, self.last) if len(self.last) == len(new) else None
        if self.cosine is not None and self.cosine > BOUND:
            for weight, part in zip(weights, aligned(new, self.last), strict=True):
                weight.grad = part
        self.last = new

    def update(self, batch: Sequence[shoal.Scored], seed: int = 0) -> UpdateResult:
        result = super().update(batch, seed)
        if self.cosine is not None:
            result.metrics["gac/cosine"] = self.cosine
        return result

    def save(self, folder: Path) -> None:
        super().save(folder)
        torch.save(self.last, folder / "gac.pt")

    def load(self, folder: Path) -> None:
        super().load(folder)
        self.last = torch.load(folder / "gac.pt", map_location=self.device, weights_only=True)


def dot(a: Gradient, b: Gradient) -> float:
    return math.fsum(float((one * other).sum()) for one, other in zip(a, b, strict=True))


def cosine(a: Gradient, b: Gradient) -> float | None:
    """None if one of them is 0 or not finite."""
    size = math.sqrt(dot(a, a) * dot(b, b))
    return dot(a, b) / size if size and math.isfinite(size) else None


def aligned(new: Gradient, last: Gradient) -> Gradient:
    """`new` with as much less of `last` that their cosine is `BOUND`."""
    along = dot(new, last) / dot(last, last)
    across = [one - along * other for one, other in zip(new, last, strict=True)]
    kept = BOUND / math.sqrt(1 - BOUND**2) * math.sqrt(dot(across, across) / dot(last, last))
    return [one + kept * other for one, other in zip(across, last, strict=True)]


def _language(policy: Policy) -> LanguagePolicy:
    if not isinstance(policy, LanguagePolicy) or policy.ranks.size > 1:
        raise UserError("this learner trains language models in one process: leave out --learner, or torchrun")
    return policy


def agreement(policy: Policy, config: shoal.Config) -> Agreement:
    return Agreement(_language(policy), config)


def gac(policy: Policy, config: shoal.Config) -> GAC:
    return GAC(_language(policy), config)
