"""What other nodes' completions count in an update: never more than a node's own, and less where nothing but their
makers would have written them.

A weight in [0, 1] for each token, constant in the gradient, multiplies the policy's loss there. It follows from two
likelihoods: that of the completion here when the round began (pi), and that where it was made (mu). Makers may tell
theirs, and may lie; since no weight exceeds 1, a lie cannot make a completion count more than in the paper, where all
count 1. Where mu is unknown it is taken to be what own completions have here, `own_nll` nats less for each token: it
would be exactly that for a maker that is as sure of itself. See docs/external.md.

Shape suffixes: T trained tokens of a batch, L slots of the update's tokens, those of all nodes one after another.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean
from typing import NamedTuple

import torch

from shoal.config.learner import LearnerConfig
from shoal.learn.batch import Trained
from shoal.learn.losses import sequence_mean, sequence_sum, token_weights
from shoal.parallel.ranks import Ranks
from shoal.rollout import Scored
from shoal.selection.trust import GATED

DECAY = 0.9
"""Of `own_nll`, for each update."""
MASKED = 0.5
"""`mask`: nats for each token by which a failure may have become less likely. DeepSeek does not tell its own; TRL
suggests this."""
LEAST, GREATEST = 0.5, 2.0
"""`mis`: the ratios that count (IcePop, as in TRL)."""
GAMMA = 0.1
"""`luffy`: the probability at which its objective rises most."""
UNLIKELIEST = -100.0
"""Log-probability (nats) below which no token was ever sampled, whatever its maker says."""


def external_weights(
    method: str,
    gate: float,
    logps_T: torch.Tensor,
    behaviour_T: torch.Tensor,
    own_nll_T: torch.Tensor,
    advantages_T: torch.Tensor,
    sequences_T: torch.Tensor,
    groups_T: torch.Tensor,
    missing_G: torch.Tensor,
) -> torch.Tensor:
    """What each token counts, in [0, 1], by `external_weight` and `external_gate` of `LearnerConfig`.

    `logps_T`, `behaviour_T`: log pi and log mu (nats), the latter NaN in completions where it is unknown; `own_nll_T`:
    of the node itself, NaN where it has none yet. With rho = pi / mu:
    `topr` min(1, product of rho) with a negative advantage, else 1 (arXiv 2503.14286);
    `mask` 0 with a negative advantage and a mean of -log rho above 0.5, else 1 (DeepSeek-V3.2, arXiv 2512.02556);
    `tis` min(1, rho) (truncated importance sampling), and `mis` that, but 0 outside [0.5, 2] (IcePop, arXiv
    2510.18855); where mu is unknown rho is its geometric mean over the completion;
    `luffy` gamma pi / (pi + gamma)^2: with it the gradient is that of A pi / (pi + gamma) (arXiv 2504.14945).
    The gate leaves out successes, and of their group's failures (by weight) as much as of its successes. All of a group
    that is trained on has to be here; `missing_G`: the sum of the positive advantages of what is not.
    """
    weights_T = torch.ones_like(logps_T)
    log_rho_T = _log_ratios(logps_T, behaviour_T, own_nll_T, sequences_T)
    if method == "topr":
        rho_T = sequence_sum(log_rho_T, sequences_T).clamp(max=0).exp()
        weights_T = torch.where(advantages_T < 0, rho_T, weights_T)
    elif method == "mask":
        strange_T = sequence_mean(log_rho_T, sequences_T) < -MASKED
        weights_T = weights_T.masked_fill((advantages_T < 0) & strange_T, 0)
    elif method in ("tis", "mis"):
        weights_T = log_rho_T.clamp(max=0).exp()
        if method == "mis":
            far_T = (log_rho_T < math.log(LEAST)) | (log_rho_T > math.log(GREATEST))
            weights_T = weights_T.masked_fill(far_T, 0)
    elif method == "luffy":
        odds_T = logps_T - math.log(GAMMA)
        weights_T = torch.sigmoid(odds_T) * torch.sigmoid(-odds_T)
    elif method != "none":
        raise ValueError(f"unknown external_weight {method!r}")
    if not gate:
        return weights_T
    gated_T = _gated(gate, logps_T, own_nll_T, advantages_T, sequences_T)
    through_T = _through(gated_T, advantages_T, sequences_T, groups_T, missing_G)
    return torch.where(advantages_T < 0, through_T * weights_T, weights_T).masked_fill(gated_T, 0)


def _log_ratios(
    logps_T: torch.Tensor, behaviour_T: torch.Tensor, own_nll_T: torch.Tensor, sequences_T: torch.Tensor
) -> torch.Tensor:
    """log(pi / mu) for each token. Where mu is unknown all tokens of a completion have the mean of theirs, and 0 where
    there is nothing to go by either."""
    guess_T = sequence_mean(logps_T, sequences_T) + own_nll_T
    guess_T = torch.where(own_nll_T.isnan(), 0, guess_T)
    return torch.where(behaviour_T.isnan(), guess_T, logps_T - behaviour_T)


def _gated(
    gate: float, logps_T: torch.Tensor, own_nll_T: torch.Tensor, advantages_T: torch.Tensor, sequences_T: torch.Tensor
) -> torch.Tensor:
    """Where a success is more than `gate` nats for each token less likely than own completions."""
    gap_T = -sequence_mean(logps_T, sequences_T) - own_nll_T
    return (gap_T > gate) & (advantages_T > 0)


def _through(
    gated_T: torch.Tensor,
    advantages_T: torch.Tensor,
    sequences_T: torch.Tensor,
    groups_T: torch.Tensor,
    missing_G: torch.Tensor,
) -> torch.Tensor:
    """The share of its group's successes, by their advantages, that is trained on; 1 where there are none.

    Without its successes a group's failures would push down, and nothing up.
    """
    success_T = advantages_T.clamp(min=0) / sequence_sum(torch.ones_like(advantages_T), sequences_T)
    all_G, through_G = (
        torch.zeros_like(missing_G).index_add(0, groups_T, x_T) for x_T in (success_T, success_T * ~gated_T)
    )
    all_G = all_G + missing_G
    return torch.where(all_G > 0, through_G / all_G, 1).clamp(max=1)[groups_T]


def balanced_weights(
    lengths: Sequence[int],
    foreign: Sequence[bool],
    counted: Sequence[bool],
    local_share: float,
    loss_type: str,
    max_completion_length: int,
    tokens_per_step: tuple[float, float],
) -> list[float]:
    """`losses.token_weights` where the loss is lam L_own + (1 - lam) L_ext, lam = `local_share`: each source is
    averaged by itself, over what is `counted` of it, so that it has its share however little that is. What a source
    leaves where nothing of it counts falls to nobody.

    All of the completions of an optimiser step. `tokens_per_step`: of own and of others' completions that count, the
    mean over the steps of a pass.
    """
    weights = [0.0] * len(lengths)
    for source, share in ((False, local_share), (True, 1 - local_share)):
        which = [i for i in range(len(lengths)) if foreign[i] == source and counted[i]]
        found = token_weights([lengths[i] for i in which], loss_type, max_completion_length, tokens_per_step[source])
        for i, weight in zip(which, found, strict=True):
            weights[i] = share * weight
    return weights


def sampled_nll(scored: Sequence[Scored]) -> float | None:
    """Nats for each token that own completions had when they were sampled; None if no policy told."""
    own = [c.logprobs for s in scored if not s.foreign for c in s.rollout.completions if c.logprobs]
    return -sum(map(sum, own)) / sum(map(len, own)) if own else None


def running_mean(mean: float | None, value: float | None) -> float | None:
    """`mean` with a new value; the first one is the mean. What is not finite changes nothing."""
    if value is None or not math.isfinite(value):
        return mean
    return value if mean is None else DECAY * mean + (1 - DECAY) * value


@dataclass(frozen=True)
class Report:
    """What became of other nodes' completions in an update."""

    weights: dict[int, float] = field(default_factory=dict)
    """Mean weight of a completion's tokens, by its slot."""
    metrics: dict[str, float] = field(default_factory=dict)
    trained_nll: float | None = None
    """Nats for each token of own completions, as far as they were trained on beside others'."""


class Found(NamedTuple):
    """What a completion of another node came to."""

    node: str
    weight: float
    """Mean of its tokens."""
    nll: float
    """Nats for each token, here, when the round began."""
    advantage: float


class External:
    """Other nodes' completions among all that is trained on in an update, of one node or of several that update as one:
    there, what is at a node's slot l is at `number * slots + l` here."""

    def __init__(
        self,
        sequences_N: Sequence[Sequence[Trained]],
        own_nll_N: Sequence[float | None],
        slots: int,
        config: LearnerConfig,
        like: torch.Tensor,
        advantages_L: torch.Tensor | None = None,
        logps_L: torch.Tensor | None = None,
    ) -> None:
        """`like`: a tensor of the type and on the device of log-probabilities. `advantages_L`: a critic's, in place of
        those of the sequences. `logps_L`: of all tokens as the round began, if they are known already."""
        self.config, self.slots, self.sequences_N, self.own_nll_N = config, slots, sequences_N, own_nll_N
        size = slots * len(sequences_N)
        foreign, behaviour, advantages = [False] * size, [math.nan] * size, [0.0] * size
        groups, missing = [0] * size, [0.0] * size
        for number, sequences in enumerate(sequences_N):
            for s in sequences:
                where = slice(number * slots + s.slot, number * slots + s.slot + len(s.token_ids))
                foreign[where] = [s.foreign] * len(s.token_ids)
                advantages[where] = [s.advantage] * len(s.token_ids)
                groups[where] = [number * slots + s.group] * len(s.token_ids)
                missing[number * slots + s.group] = s.missing
                if s.behaviour is not None and all(map(math.isfinite, s.behaviour)):
                    behaviour[where] = [min(0.0, max(UNLIKELIEST, logp)) for logp in s.behaviour]
        self.foreign_L = torch.tensor(foreign, device=like.device)
        self.groups_L, self.missing_G = torch.tensor(groups, device=like.device), like.new_tensor(missing)
        self.behaviour_L = like.new_tensor(behaviour)
        self.advantages_L = like.new_tensor(advantages) if advantages_L is None else advantages_L.to(like)
        self.reference_N = like.new_tensor([math.nan if nll is None else nll for nll in own_nll_N])
        self.weights_L, self.logps_L = like.new_zeros(size), like.new_zeros(size)
        self.weighed = logps_L is not None
        if logps_L is not None:
            self._weigh_all(logps_L)

    def weigh(self, where_T: torch.Tensor, logps_T: torch.Tensor, sequences_T: torch.Tensor) -> torch.Tensor:
        """What the tokens at `where_T` count, 1 for own ones, by what their log-probabilities were as the round began.
        All tokens of a completion must be here, and with a gate all of a group, unless all was weighed before."""
        if not self.weighed:
            self._weigh(where_T, logps_T, sequences_T)
        return self.weights_L[where_T]

    def _weigh(self, where_T: torch.Tensor, logps_T: torch.Tensor, sequences_T: torch.Tensor) -> None:
        weights_T = external_weights(
            self.config.external_weight,
            self.config.external_gate,
            logps_T,
            self.behaviour_L[where_T],
            self.reference_N[where_T // self.slots],
            sequence_mean(self.advantages_L[where_T], sequences_T),
            sequences_T,
            self.groups_L[where_T],
            self.missing_G,
        )
        self.weights_L[where_T] = weights_T.masked_fill(~self.foreign_L[where_T], 1)
        self.logps_L[where_T] = logps_T

    def _weigh_all(self, logps_L: torch.Tensor) -> None:
        where = [number * self.slots + s.slot for number, all_of in enumerate(self.sequences_N) for s in all_of]
        lengths = [len(s.token_ids) for all_of in self.sequences_N for s in all_of]
        ranges = [torch.arange(start, start + length) for start, length in zip(where, lengths, strict=True)]
        where_T = torch.cat(ranges).to(logps_L.device)
        sequences_T = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).to(logps_L.device)
        self._weigh(where_T, logps_L[where_T], sequences_T)

    def gather(self, ranks: Ranks) -> None:
        """Adds what other ranks have computed."""
        if self.weighed and not ranks.leader:
            self.weights_L.zero_()  # sums on a GPU differ a little from rank to rank: the leader's are everybody's
        ranks.add([self.weights_L] if self.weighed else [self.weights_L, self.logps_L])

    def reports(self) -> list[Report]:
        """Of each node, after the update."""
        weights_NL, nll_NL, advantages_NL = (
            values_L.double().cpu().view(-1, self.slots)
            for values_L in (self.weights_L, -self.logps_L, self.advantages_L)
        )
        return [
            self._report(number, weights_NL[number], nll_NL[number], advantages_NL[number])
            for number in range(len(self.sequences_N))
        ]

    def _report(self, number: int, weights_L: torch.Tensor, nll_L: torch.Tensor, advantages_L: torch.Tensor) -> Report:
        own_tokens, own_nll = 0, 0.0
        reference = self.own_nll_N[number]
        found: list[Found] = []
        weight_of: dict[int, float] = {}
        for s in self.sequences_N[number]:
            where = slice(s.slot, s.slot + len(s.token_ids))
            if s.foreign:
                weight, nll, advantage = (x_L[where].mean().item() for x_L in (weights_L, nll_L, advantages_L))
                weight_of[s.slot] = weight
                found.append(Found(s.node, weight, nll, advantage))
            else:
                own_tokens, own_nll = own_tokens + len(s.token_ids), own_nll + nll_L[where].sum().item()
        if not found:
            return Report()
        metrics = external_metrics(found, reference, self.config.external_gate)
        return Report(weight_of, metrics, own_nll / own_tokens if own_tokens else None)


def external_metrics(found: Sequence[Found], own_nll: float | None, gate: float) -> dict[str, float]:
    """Of other nodes' completions in an update.

    `external/ess`: (sum w)^2 / (n sum w^2) of the n with an advantage, the share of them that the update rests on; 0 if
    all weigh 0. `external/weight`: their mean weight. `external/gated`: the share of successes (A > 0) that the gate
    keeps out, and with a gate `gated/from/NODE` of each node's, by their advantages, since a lower baseline makes
    successes of failures, if only just. `external/nll_gap`: mean nats for each token by which all of them are less
    likely than own ones.
    """
    metrics = {}
    gaps = [f.nll - own_nll for f in found] if own_nll is not None else []
    weights = [f.weight for f in found if f.advantage]
    if weights:
        squares = sum(weight**2 for weight in weights)
        metrics["external/ess"] = sum(weights) ** 2 / (len(weights) * squares) if squares else 0.0
        metrics["external/weight"] = sum(weights) / len(weights)
        successes: dict[str, list[tuple[bool, float]]] = defaultdict(list)
        for f, gap in zip(found, gaps, strict=False) if gate else ():
            if f.advantage > 0:
                successes[f.node].append((gap > gate, f.advantage))
        metrics["external/gated"] = fmean(out for out, _ in chain(*successes.values())) if successes else 0.0
        for node, of_node in successes.items():
            metrics[GATED + node] = sum(out * A for out, A in of_node) / sum(A for _, A in of_node)
    if gaps:
        metrics["external/nll_gap"] = fmean(gaps)
    return metrics
