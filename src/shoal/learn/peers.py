"""How much peers' completions count in an update: at most as much as own ones, and less for
text that this node's policy finds unlikely.

Each token gets a weight in [0, 1], constant in the gradient, that multiplies its loss. It follows from the completion's
likelihood here when the round began (pi) and an estimate of its likelihood where it was made (mu): the mean likelihood
of own completions, `own_nll` nats less for each token. That is exact for a maker that is as sure of itself as this
node. See docs/concepts/update.md.

Shape suffixes: T trained tokens of a micro-batch, L trained tokens of the whole update, G groups, N completions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch

from shoal.errors import UserError
from shoal.learn.batch import MicroBatch, Trained
from shoal.learn.losses.base import sequence_mean
from shoal.learn.weights.base import PeerTokens, Weight
from shoal.parallel.ranks import Ranks
from shoal.rollout import Scored

DECAY = 0.9
"""Of running means, for each update."""


def peer_weights(
    weight: Weight,
    logps_T: torch.Tensor,
    own_nll: float | None,
    advantages_T: torch.Tensor,
    sequences_T: torch.Tensor,
) -> torch.Tensor:
    """The weight of each token, in [0, 1]. `logps_T`: log pi (nats). `own_nll`: nats for each token of own completions;
    None if not known yet, so that everything counts 1."""
    if own_nll is None:
        return torch.ones_like(logps_T)
    gap_T = -sequence_mean(logps_T, sequences_T) - logps_T.new_tensor(own_nll)
    weights_T = weight.weights(PeerTokens(logps_T, gap_T, advantages_T, sequences_T))
    if weights_T.shape != logps_T.shape:
        raise UserError(f"the weight gave {tuple(weights_T.shape)} numbers for {len(logps_T)} tokens: give one each")
    return weights_T.clamp(0, 1)


def sampled_nll(scored: Sequence[Scored]) -> float | None:
    """Nats for each token of own completions when they were sampled; None if no completion has log-probabilities."""
    own = [c.logprobs for s in scored if not s.from_peer for c in s.rollout.completions if c.logprobs]
    return -sum(map(sum, own)) / sum(map(len, own)) if own else None


def running_mean(mean: float | None, value: float | None) -> float | None:
    """`mean` with a new value; the first value is the mean. Values that are not finite change nothing."""
    if value is None or not math.isfinite(value):
        return mean
    return value if mean is None else DECAY * mean + (1 - DECAY) * value


@dataclass(frozen=True)
class Report:
    """What an update found of peers' completions."""

    weights: dict[int, float] = field(default_factory=dict)
    """Mean weight of a completion's tokens, by its offset."""
    metrics: dict[str, float] = field(default_factory=dict)
    trained_nll: float | None = None
    """Nats for each token of the own completions that were trained on beside peers'."""


class PeerWeights:
    """The weights of all trained tokens of an update: 1 for own ones, `peer_weights` for peers'."""

    def __init__(self, weight: Weight, sequences: Sequence[Trained], own_nll: float | None, like: torch.Tensor) -> None:
        """`sequences`: all that is trained on; their offsets cover the update. `like`: has the type and device of
        log-probabilities."""
        self.weight, self.sequences, self.own_nll = weight, sequences, own_nll
        in_order = sorted(sequences, key=lambda s: s.offset)
        lengths_N = torch.tensor([len(s.token_ids) for s in in_order])
        self._sequences_L = torch.arange(len(in_order)).repeat_interleave(lengths_N).to(like.device)
        self._of_peers_N = torch.tensor([s.from_peer for s in in_order], device=like.device)
        self._advantages_N = like.new_tensor([s.advantage for s in in_order])
        self.weights_L = like.new_zeros(len(self._sequences_L))
        self.logps_L = like.new_zeros(len(self._sequences_L))

    def of(self, batch: MicroBatch, old_logps_T: torch.Tensor) -> torch.Tensor:
        """The weights of the tokens of `batch`; `old_logps_T`: log-probabilities when the round began."""
        where, whose_T = batch.offsets_T, self._sequences_L[batch.offsets_T]
        advantages_T = self._advantages_N[whose_T]
        weights_T = peer_weights(self.weight, old_logps_T, self.own_nll, advantages_T, batch.sequences_T)
        self.weights_L[where] = weights_T.masked_fill(~self._of_peers_N[whose_T], 1)
        self.logps_L[where] = old_logps_T
        return self.weights_L[where]

    def report(self, ranks: Ranks) -> Report:
        """What all ranks found. Call it after the update."""
        ranks.add([self.weights_L, self.logps_L])
        weights_L, nll_L = self.weights_L.cpu().double(), -self.logps_L.cpu().double()
        found: list[tuple[float, float, float]] = []
        weights: dict[int, float] = {}
        own_tokens, own_nll = 0, 0.0
        for s in self.sequences:
            where = slice(s.offset, s.offset + len(s.token_ids))
            if s.from_peer:
                weights[s.offset] = weights_L[where].mean().item()
                found.append((s.advantage, weights[s.offset], nll_L[where].mean().item()))
            else:
                own_tokens, own_nll = own_tokens + len(s.token_ids), own_nll + nll_L[where].sum().item()
        metrics = peer_metrics(found, self.own_nll)
        return Report(weights, metrics, own_nll / own_tokens if own_tokens else None)


def peer_metrics(found: Sequence[tuple[float, float, float]], own_nll: float | None) -> dict[str, float]:
    """Figures of peers' completions in an update. `found`: of each its advantage, weight and nats for each token.

    `peers/ess`: (sum w)^2 / (n sum w^2) over the n completions with an advantage, the share of them that the update
    rests on; 0 if all weights are 0. `peers/weight`: their mean weight. `peers/nll_gap`: mean nats for each token by
    which completions are less likely than own ones.
    """
    metrics = {}
    weights = [weight for advantage, weight, _ in found if advantage]
    if weights:
        squares = sum(weight**2 for weight in weights)
        metrics["peers/ess"] = sum(weights) ** 2 / (len(weights) * squares) if squares else 0.0
        metrics["peers/weight"] = sum(weights) / len(weights)
    if found and own_nll is not None:
        metrics["peers/nll_gap"] = fmean(nll - own_nll for *_, nll in found)
    return metrics
