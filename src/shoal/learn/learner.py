"""The update: policy-gradient steps on groups of scored rollouts, own ones and peers'."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shoal.config.policy import default_learning_rate
from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.errors import UserError, say_once
from shoal.learn.batch import Family, MicroBatch, Row, Trained, make_rows, micro_batches, row_families
from shoal.learn.checkpointing import Checkpointing, pass_lengths
from shoal.learn.logprobs import Prefix, separate_logprobs, takes_packed, token_logprobs
from shoal.learn.losses import make_loss
from shoal.learn.losses.base import Tokens
from shoal.learn.optim import make_optimizer, sum_gradients
from shoal.learn.peers import PeerWeights, Report, running_mean, sampled_nll
from shoal.learn.prepare import make_groups, mean_own_size, pack
from shoal.learn.vocabulary import gradients_in_place
from shoal.learn.weights import make_weight
from shoal.parallel.ranks import ALONE, Ranks
from shoal.policy.attention import attention
from shoal.policy.device import give_back, is_out_of_memory
from shoal.policy.flops import Flops
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import align
from shoal.policy.vision import vision_of
from shoal.protocols import UpdateResult
from shoal.rollout import Scored

MAX_GRAD_NORM = 1.0  # the longest gradient (2-norm) that is applied; a longer one is scaled down
LEAST_TOKENS = 128  # where memory runs out, passes get no shorter than this: each costs much beside its tokens


def token_budget(model: Any) -> int:
    """The most tokens in one forward and backward pass; behind a prompt that takes more than half of them, half as
    many. It bounds memory (four nodes of 135 million parameters in one process take some 8 GB) and changes no result.
    Pictures make long prompts, and each pass behind them costs much beside its tokens."""
    return 16_384 if model.device.type == "cuda" else 512 if vision_of(model) is None else 1024


class GRPOLearner:
    """Group-relative policy optimisation (arXiv 2402.03300) with the variants that `LearnerConfig` names.

        learner = GRPOLearner(policy, LearnerConfig(), PeersConfig(), learning_rate=1e-6)
        result = learner.update(own + peers)

    One call of `update` is one round: `num_iterations` optimiser steps, each on all of its rollouts. Rollouts that are
    `from_peer` count as `PeersConfig` says.

    With several ranks, each computes some of the rows and gradients are summed. Losses are weighted for the whole step
    beforehand, so all ranks take the same step.
    """

    def __init__(
        self,
        policy: LanguagePolicy,
        config: LearnerConfig | None = None,
        peers: PeersConfig | None = None,
        learning_rate: float | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """`learning_rate`: None: that of `config`, or the model's default."""
        self.policy = policy
        self.config = config = config or LearnerConfig()
        self.peers = peers or PeersConfig()
        self.loss = make_loss(config.loss_type)
        self.peer_weight = make_weight(self.peers.weight)
        if learning_rate is None:
            adapters = not all(weight.requires_grad for weight in policy.lm.model.parameters())
            rate = config.learning_rate
            learning_rate = default_learning_rate(policy.name, adapters) if rate == "auto" else rate
        self.learning_rate = learning_rate
        self.ranks = ranks
        self.max_grad_norm = MAX_GRAD_NORM
        self.model: Any = policy.lm.model
        align(self.model)
        self.device: torch.device = policy.placement.device
        self.packs = takes_packed(policy)
        """Whether the completions of a question are computed together, behind one copy of their prompt."""
        self.optimizer = make_optimizer(self.model.parameters(), config.optim, learning_rate)
        budget, above = pass_lengths(self.model, policy.placement, token_budget(self.model), self.packs)
        self.token_budget = budget if self.packs else 0
        self.checkpointing = Checkpointing(self.model, above)
        self.flops = Flops.of(self.model)
        self.skipped_steps = 0
        self.own_nll: float | None = None
        """Nats for each token of own completions: a running mean over updates, None before the first."""
        self.own_size: float | None = None
        """The mean gradient size of own groups (`limit`): a running mean over updates, None before the first."""

    def update(self, batch: Sequence[Scored], seed: int = 0) -> UpdateResult:
        """Learns from `batch`. `seed`: of the order of the rollouts, on which the last digits depend."""
        give_back()
        sampled = sampled_nll(batch)
        self.own_nll = running_mean(self.own_nll, sampled)
        average, weight = self.loss.average, self.peer_weight
        groups = make_groups(batch, self.policy, self.config, weight.baseline_shift, average, seed)
        self.own_size = running_mean(self.own_size, mean_own_size(groups))
        rows = pack(groups, self.policy, average, self.own_size, weight.limit, self.token_budget)
        sequences = [s for row in rows for s in row.sequences]
        fixed = self._fixed(rows, sequences)
        sums = Sums()
        for _ in range(self.steps(rows)):
            self._step(rows, fixed, sums)
        sums.gather(self.ranks)
        report = fixed.peers.report(self.ranks) if fixed.peers else Report()
        if sampled is None:
            self.own_nll = running_mean(self.own_nll, report.trained_nll)
        metrics = sums.means(self.skipped_steps) | report.metrics | self.cost(rows, fixed)
        shares = gradient_shares(sequences, report.weights) if sums.steps else {}
        return UpdateResult(metrics, shares)

    def _fixed(self, rows: list[Row], sequences: list[Trained]) -> Fixed:
        offsets = sum(len(s.token_ids) for s in sequences)
        old_logps = self._logprobs(rows, offsets) if rows and self.config.num_iterations > 1 else None
        peers = None
        if any(s.from_peer for s in sequences):
            peers = PeerWeights(self.peer_weight, sequences, self.own_nll, self._zeros(0))
        return Fixed(old_logps, peers)

    def steps(self, rows: list[Row]) -> int:
        """Optimiser steps of an update: none without anything to learn from."""
        return self.config.num_iterations if rows else 0

    def _step(self, rows: list[Row], fixed: Fixed, sums: Sums) -> None:
        """One optimiser step on `rows`. A gradient that is not finite is counted and not applied."""
        if not self._compute_gradient(rows, fixed, sums):
            self.skipped_steps += 1
            return
        give_back()
        weights = list(self.model.parameters())
        sum_gradients(weights, self.ranks, self.device)
        norm = torch.nn.utils.clip_grad_norm_(weights, self.max_grad_norm)  # the one before
        sums.tried += 1
        if torch.isfinite(norm):
            self.optimizer.step()
            sums.steps += 1
            sums.add(grad_norm=norm)
        else:
            self.skipped_steps += 1
        self.optimizer.zero_grad(set_to_none=True)

    def add_gradient(self, rows: list[Row], fixed: Fixed, sums: Sums) -> None:
        """Adds the gradient of a step's loss."""
        for family in self.families(rows):
            self._learn(family, fixed, sums)

    def _compute_gradient(self, rows: list[Row], fixed: Fixed, sums: Sums) -> bool:
        """Where memory runs out, passes have half as many tokens from then on. False: the shortest have no room either.
        Raises `UserError` if that is so in the first update."""
        placement = self.policy.placement
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            found = Sums()
            # a checkpointed layer is computed again in the backward pass
            with attention(self.model) if self.packs else nullcontext(), gradients_in_place(self.model, placement):
                try:
                    self.add_gradient(rows, fixed, found)
                    sums.add(found.tokens, **found.sums)
                    return True
                except RuntimeError as error:
                    if not is_out_of_memory(error):
                        raise
                    self.optimizer.zero_grad(set_to_none=True)
            give_back()
            if self.token_budget <= LEAST_TOKENS and not self.checkpointing.above:
                said = "memory ran out in an update; take --lora-r 16, --optim adafactor or shorter answers"
                if not self.optimizer.state or self.ranks.size > 1:
                    raise UserError(said)
                say_once(said)
                return False
            self.checkpointing.above = 0
            self.token_budget = min(self.token_budget, max(LEAST_TOKENS, self.token_budget // 2))
            say_once(f"memory ran out in an update: a pass has at most {self.token_budget:,} tokens from now on")

    def _learn(self, family: Family, fixed: Fixed, sums: Sums) -> None:
        """Adds the gradient of a family."""
        with self.checkpointing.of(family.shared):
            prefix = self.prefix(family)
        for batch in self.micro_batches(family):
            with self.checkpointing.of(batch.input_ids_RS.numel()):
                logps_T, entropy_T = self._forward(batch, prefix)
            loss = self._loss(batch, logps_T, fixed, sums)
            loss.backward()
            sums.add(len(logps_T), loss=loss, entropy=entropy_T.sum())
        if prefix is not None:
            prefix.backward()

    def _loss(self, batch: MicroBatch, logps_T: torch.Tensor, fixed: Fixed, sums: Sums) -> torch.Tensor:
        """The loss of a micro-batch: its part of the step's."""
        old_T = logps_T.detach() if fixed.old_logps is None else fixed.old_logps[batch.offsets_T]
        found = self.loss.token_losses(Tokens(logps_T, old_T, batch.advantages_T, batch.sequences_T))
        loss_T = found.loss_T
        if loss_T.shape != logps_T.shape:
            raise UserError(f"the loss gave {tuple(loss_T.shape)} numbers for {len(logps_T)} tokens: give one each")
        clipped = {"low": found.low_T, "high": found.high_T}
        sums.add(0, **{name: where_T.sum() for name, where_T in clipped.items() if where_T is not None})
        if fixed.peers is not None:
            loss_T = loss_T * fixed.peers.of(batch, old_T)
        return (loss_T * batch.weights_T).sum()

    def prefix(self, family: Family) -> Prefix | None:
        return Prefix(self.model, family.prefix_ids, self.policy.placement) if family.shared else None

    def _forward(self, batch: MicroBatch, prefix: Prefix | None) -> tuple[torch.Tensor, torch.Tensor]:
        """logps_T and entropy_T, in one pass through the model."""
        layers = [] if prefix is None else prefix.layers
        with self.policy.placement.autocast():
            if not self.packs:
                return separate_logprobs(self.model, batch, self.policy.sampling.temperature)
            return token_logprobs(self.model, batch, self.policy.sampling.temperature, layers)

    @torch.no_grad()
    def _logprobs(self, rows: list[Row], offsets: int) -> torch.Tensor:
        """Log-probabilities under the policy as it is now, at the offsets of their tokens."""
        logps = self._zeros(offsets)
        for family in self.families(rows):
            prefix = self.prefix(family)
            for batch in self.micro_batches(family):
                logps[batch.offsets_T], _ = self._forward(batch, prefix)
        self.ranks.add([logps])
        return logps

    def _zeros(self, size: int) -> torch.Tensor:
        """With the type and device of log-probabilities."""
        return torch.zeros(size, dtype=torch.promote_types(self.model.dtype, torch.float32), device=self.device)

    def families(self, rows: list[Row]) -> list[Family]:
        """This rank's part of `rows`, as families with a shared prefix."""
        dealt = self.ranks.deal(rows, len)
        rows = [part for row in dealt for part in make_rows(row.prompt_ids, row.sequences, self.token_budget)]
        return row_families(rows, self.packs)

    def cost(self, rows: list[Row], fixed: Fixed) -> dict[str, float]:
        """What the update read and computed, on all ranks together."""
        steps = self.config.num_iterations
        read, trained = self.tokens_read(rows), sum(len(s.token_ids) for row in rows for s in row.sequences)
        flops = self.flops.learning(read, trained, steps, int(fixed.old_logps is not None))
        return {"tokens/read": read * steps, "flops/learn": flops}

    def tokens_read(self, rows: list[Row]) -> int:
        """Tokens that one pass over `rows` computes."""
        return sum(f.shared + sum(len(row) - f.shared for row in f.rows) for f in row_families(rows, self.packs))

    def micro_batches(self, family: Family) -> Iterator[MicroBatch]:
        """The micro-batches of `family`."""
        return micro_batches(family.rows, self.token_budget, self.device, family.shared)

    def save(self, folder: Path) -> None:
        """Writes the optimiser's state and the running means; the policy saves the weights. Only rank zero writes."""
        state = {"optimizer": self.optimizer.state_dict(), "skipped_steps": self.skipped_steps}
        state |= {"own_nll": self.own_nll, "own_size": self.own_size}
        if self.ranks.is_zero:
            torch.save(state, folder / "learner.pt")

    def load(self, folder: Path) -> None:
        """Restores what `save` wrote."""
        state = torch.load(folder / "learner.pt", map_location=self.device, weights_only=True)
        if state["optimizer"]["param_groups"][0].keys() != self.optimizer.state_dict()["param_groups"][0].keys():
            raise UserError(f"{folder / 'learner.pt'} has the state of another optimizer than learner.optim names")
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:  # that of the settings, which may be another by now
            group["lr"] = self.learning_rate
        self.skipped_steps = state["skipped_steps"]
        self.own_nll, self.own_size = state["own_nll"], state["own_size"]


@dataclass(frozen=True)
class Fixed:
    """What stays the same during an update."""

    old_logps: torch.Tensor | None
    """Log-probabilities when the round began, at the offsets of their tokens; None: the first pass gives them."""
    peers: PeerWeights | None
    """None if no peer's completion is trained on."""


def gradient_shares(sequences: Sequence[Trained], weights: dict[int, float]) -> dict[str, float]:
    """Each maker's share of an update's gradient. `weights`: the mean one of each peer's completion, by its offset."""
    sizes: dict[str, float] = defaultdict(float)
    for s in sorted(sequences, key=lambda s: s.offset):
        sizes[s.node] += abs(s.advantage) * s.weight * len(s.token_ids) * weights.get(s.offset, 1.0)
    total = sum(sizes.values())
    return {maker: size / total for maker, size in sizes.items()} if total else {}


class Sums:
    """The metrics of an update, summed over micro-batches. They are read from the device once, at the end."""

    def __init__(self) -> None:
        self.tokens = 0
        self.tried = 0
        """Optimizer steps, with those whose gradient was not finite: losses are means over these."""
        self.steps = 0
        """The steps that were applied."""
        self.sums: dict[str, torch.Tensor] = {}

    def add(self, tokens: int = 0, **values: torch.Tensor) -> None:
        self.tokens += tokens
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value.detach()

    def gather(self, ranks: Ranks) -> None:
        """Adds the sums of the other ranks. The norm of the gradient is the same on all."""
        if ranks.size == 1:
            return
        everyone = ranks.each((self.tokens, {name: float(value) for name, value in self.sums.items()}))
        self.tokens = sum(tokens for tokens, _ in everyone)
        for name in {name for _, sums in everyone for name in sums} - {"grad_norm"}:
            self.sums[name] = torch.tensor(sum(s.get(name, 0.0) for _, s in everyone), dtype=torch.float64)

    def means(self, skipped_steps: int) -> dict[str, float]:
        """Metrics with TRL's names."""
        sums = {name: float(value) for name, value in self.sums.items()}
        tokens, steps, tried = max(self.tokens, 1), max(self.steps, 1), max(self.tried, 1)
        return {
            "loss": sums.get("loss", 0.0) / tried,
            "grad_norm": sums.get("grad_norm", 0.0) / steps,
            "entropy": sums.get("entropy", 0.0) / tokens,
            "clip_ratio/low_mean": sums.get("low", 0.0) / tokens,
            "clip_ratio/high_mean": sums.get("high", 0.0) / tokens,
            "tokens/trained": self.tokens,
            "learner/steps": self.steps,
            "learner/skipped_steps": skipped_steps,
        }
