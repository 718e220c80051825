"""The update of many small nodes at once: one forward and backward pass for all, and an optimiser step for each.

The gradient of the sum of all nodes' losses is, in each node's weights, that of its own loss. Each node keeps its own
optimiser on its slice of the stacked weights, so that its checkpoints are those of a node alone.

Shape suffixes: N nodes, T trained tokens, of all nodes one after another; W the most of them that one node has, D
hidden size, L slots of a node's update.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from shoal.config.learner import LearnerConfig
from shoal.errors import UserError
from shoal.learn.adapters import has_adapters
from shoal.learn.batch import MicroBatch, Row, split, tensors
from shoal.learn.external import External, Report
from shoal.learn.learner import GRPOLearner
from shoal.learn.logprobs import CHUNK_ELEMENTS, token_logprobs, trained_hidden
from shoal.learn.losses import kl_k3, policy_loss
from shoal.learn.sums import Sums
from shoal.rollout import Scored

PASSES = 4
"""A pass over the rows of all nodes takes at most this many times the tokens of a pass of one."""
DEAD = Row([0], ())
"""A row of one token that nothing is learned from."""


class StackedLearner(GRPOLearner):
    """One of N learners, which update as one when their policies (`policy.stacked`) are together. All of them have the
    same configuration, but for the learning rate."""

    def __init__(
        self, policy: Any, config: LearnerConfig, learning_rate: float, mixture: tuple[int, int] | None = None
    ) -> None:
        for setting, value in (("advantage", "gae"), ("gradient_checkpointing", True)):
            if getattr(config, setting) == value:
                raise UserError(
                    f"learner.{setting} = {value!r} does not go with stacked nodes; take swarm.stacked = false"
                )
        if has_adapters(policy.lm.model):
            raise UserError("policy.lora_r does not go with stacked nodes; take swarm.stacked = false")
        super().__init__(policy, config, learning_rate, mixture=mixture)
        self.stack: Any = policy.stack
        self.stack.learners[policy.number] = self

    def update(self, scored: Sequence[Scored], seed: int = 0) -> dict[str, float]:
        """As alone, but for rounding."""
        if not self.stack.company.present:
            return super().update(scored, seed)
        sampled = self._observe_own(scored)
        minibatches = self._minibatches(scored, seed)
        policy: Any = self.policy
        metrics: dict[str, float]
        metrics, report = self.stack.company.ask(_update, self.stack, policy.number, minibatches)
        return metrics | self._account(minibatches, report, sampled)


def _update(stack: Any, works: dict[int, list[list[Row]]]) -> dict[int, tuple[dict[str, float], Report]]:
    """Updates each node by its minibatches of rows, and gives each its metrics, and what became of others' tokens."""
    update = _Update(stack, [works.get(number, []) for number in range(stack.size)])
    reports = [Report()] * stack.size if update.external is None else update.external.reports()
    return {number: (metrics, reports[number]) for number, metrics in update.metrics().items()}


class _Update:
    def __init__(self, stack: Any, minibatches_N: list[list[list[Row]]]) -> None:
        self.stack, self.model, self.placement = stack, stack.model, stack.placement
        self.config: LearnerConfig = next(iter(stack.learners.values())).config
        self.budget = PASSES * next(iter(stack.learners.values())).token_budget
        self.sums_N = [Sums() for _ in minibatches_N]
        self.totals: dict[str, torch.Tensor] = {}
        config = self.config
        rows_N = [[row for rows in minibatches for row in rows] for minibatches in minibatches_N]
        self.slots = 1 + max((s.last_slot for rows in rows_N for row in rows for s in row.sequences), default=-1)
        most = max(map(len, minibatches_N))
        gate_first = config.external_gate > 0 and any(map(split, rows_N))
        known = config.num_iterations * most > 1 or gate_first
        self.old_NL = self._logprobs(self.model, rows_N) if known else None
        self.ref_NL = self._logprobs(_reference(stack), rows_N) if config.beta and most else None
        self.external = self._external(rows_N)
        for _ in range(config.num_iterations):
            for number in range(most):
                self._step([m[number] if number < len(m) else [] for m in minibatches_N])

    def _step(self, rows_N: list[list[Row]]) -> None:
        """An optimiser step for each node that has rows; none, but a count, where its gradient is not finite."""
        config = self.config
        for lanes in self._lanes(rows_N):
            batch = lanes.batch
            with self.placement.autocast():
                logps_T, entropy_T = _token_logprobs(self.model, lanes, self.stack.sampling.temperature)
            old_T = logps_T.detach() if self.old_NL is None else self.old_NL[lanes.node_T, batch.slots_T]
            loss_T, low_T, high_T = policy_loss(
                config.loss_type,
                logps_T,
                old_T,
                batch.advantages_T,
                batch.sequences_T,
                config.epsilon,
                config.epsilon_high,
            )
            if self.external is not None:
                where_T = lanes.node_T * self.slots + batch.slots_T
                loss_T = loss_T * self.external.weigh(where_T, old_T, batch.sequences_T)
            found = {"entropy": entropy_T, "low": low_T, "high": high_T}
            if self.ref_NL is not None:
                found["kl"] = kl_k3(logps_T, self.ref_NL[lanes.node_T, batch.slots_T])
                loss_T = loss_T + config.beta * found["kl"]
            found["loss"] = loss_T * batch.weights_T
            found["loss"].sum().backward()
            for name, values_T in found.items():
                total_N = lanes.grid(values_T.detach()).sum(1, dtype=torch.promote_types(loss_T.dtype, torch.float32))
                self.totals[name] = self.totals.get(name, torch.zeros_like(total_N)) + total_N
            for sums, tokens in zip(self.sums_N, lanes.tokens_N, strict=True):
                sums.tokens += tokens
        self._apply([number for number, rows in enumerate(rows_N) if rows])

    def _external(self, rows_N: list[list[Row]]) -> External | None:
        """Other nodes' completions in the rows of any node, if there are any."""
        sequences_N = [[s for row in rows for s in row.sequences] for rows in rows_N]
        if not any(s.foreign for sequences in sequences_N for s in sequences):
            return None
        own_nll_N = [getattr(self.stack.learners.get(number), "own_nll", None) for number in range(self.stack.size)]
        logps_L = None if self.old_NL is None else self.old_NL.flatten()
        return External(sequences_N, own_nll_N, self.slots, self.config, self._zeros(0), logps_L=logps_L)

    def _zeros(self, *shape: int) -> torch.Tensor:
        """Zeros, of the type and in the place of log-probabilities."""
        dtype = torch.promote_types(self.model.dtype, torch.float32)
        return torch.zeros(shape, dtype=dtype, device=self.placement.device)

    def _apply(self, numbers: list[int]) -> None:
        """Clips the gradient of each of these nodes by itself, and steps."""
        pairs = [(whole.grad, weights) for whole, weights in self.stack.pairs if whole.grad is not None]
        norm_N = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g, _ in pairs]).norm(dim=0)
        scale_N = (self.config.max_grad_norm / (norm_N + 1e-6)).clamp(max=1)  # as in torch's clip_grad_norm_
        for gradient, _ in pairs:
            gradient.mul_(scale_N.view(-1, *[1] * (gradient.dim() - 1)))
        for number, norm in enumerate(norm_N.tolist()):
            learner = self.stack.learners.get(number)
            if number not in numbers or learner is None:
                continue
            if math.isfinite(norm):
                for gradient, weights in pairs:
                    weights[number].grad = gradient[number]
                learner.optimizer.step()
                learner.optimizer.zero_grad(set_to_none=True)
                self.sums_N[number].steps += 1
                self.sums_N[number].add(grad_norm=torch.tensor(norm))
            else:
                learner.skipped_steps += 1
        for whole, _ in self.stack.pairs:
            whole.grad = None

    def metrics(self) -> dict[int, dict[str, float]]:
        """Of each node."""
        totals = {name: total_N.cpu() for name, total_N in self.totals.items()}
        for number, sums in enumerate(self.sums_N):
            if sums.tokens:
                sums.add(0, **{name: total_N[number] for name, total_N in totals.items()})
        return {number: self.sums_N[number].means(each.skipped_steps) for number, each in self.stack.learners.items()}

    @torch.no_grad()
    def _logprobs(self, model: Any, rows_N: list[list[Row]]) -> torch.Tensor:
        """(N, L): log-probabilities under `model` as it is now, at the slots of each node's tokens."""
        logps_NL = self._zeros(self.stack.size, self.slots)
        for lanes in self._lanes(rows_N):
            with self.placement.autocast():
                logps_T, _ = _token_logprobs(model, lanes, self.stack.sampling.temperature)
            logps_NL[lanes.node_T, lanes.batch.slots_T] = logps_T
        return logps_NL

    def _lanes(self, rows_N: list[list[Row]]) -> Iterator[_Lanes]:
        return make_lanes(rows_N, self.budget, self.placement.device)


@dataclass(frozen=True)
class _Lanes:
    """A micro-batch of equally many rows of each node, node by node."""

    batch: MicroBatch
    tokens_N: list[int]
    """Trained tokens of each node."""
    node_T: torch.Tensor
    cell_T: torch.Tensor
    """Where each trained token is in a grid (N, W)."""

    def grid(self, values: torch.Tensor) -> torch.Tensor:
        """`values` of all tokens (T, ...) as (N, W, ...): nought where a node has fewer tokens."""
        N, W = len(self.tokens_N), max(self.tokens_N)
        grid = values.new_zeros(N * W, *values.shape[1:]).index_copy(0, self.cell_T, values)
        return grid.view(N, W, *values.shape[1:])


def make_lanes(rows_N: list[list[Row]], token_budget: int, device: torch.device) -> Iterator[_Lanes]:
    """The rows of each node, those of like length together, in passes of at most `token_budget` tokens, but at least
    one row of each node."""
    longest_first = (sorted(rows, key=len, reverse=True) for rows in rows_N)
    pending: list[tuple[Row, ...]] = []
    width = 0
    for column in zip_longest(*longest_first, fillvalue=DEAD):
        if pending and width * len(rows_N) * (len(pending) + 1) > token_budget:
            yield _tensors_of(pending, device)
            pending = []
        width = width if pending else max(map(len, column))
        pending.append(column)
    if pending:
        yield _tensors_of(pending, device)


def _tensors_of(columns: list[tuple[Row, ...]], device: torch.device) -> _Lanes:
    lanes = list(zip(*columns, strict=True))
    tokens_N = [sum(len(s.token_ids) for row in rows for s in row.sequences) for rows in lanes]
    count_N = torch.tensor(tokens_N)
    node_T = torch.arange(len(lanes)).repeat_interleave(count_N)
    first_N = count_N.cumsum(0) - count_N
    cell_T = node_T * int(count_N.max()) + torch.arange(len(node_T)) - first_N[node_T]
    batch = tensors([row for rows in lanes for row in rows], device)
    return _Lanes(batch, tokens_N, node_T.to(device), cell_T.to(device))


def _token_logprobs(model: Any, lanes: _Lanes, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(logps_T, entropy_T) as `logprobs.token_logprobs` has them, each node's by its own head."""
    hidden_NWD = lanes.grid(trained_hidden(model, lanes.batch))
    target_NW = lanes.grid(lanes.batch.targets_T)
    N, V = model.get_output_embeddings().weight.shape[:2]
    width = max(1, CHUNK_ELEMENTS // (N * V))

    def head(hidden_NWD: torch.Tensor, target_NW: torch.Tensor) -> torch.Tensor:
        chunk = dataclasses.replace(lanes.batch, targets_T=target_NW.flatten())
        both = token_logprobs(model, chunk, temperature, hidden_NWD.flatten(0, 1))
        return torch.stack([values.view_as(target_NW) for values in both])

    chunks = list(zip(hidden_NWD.split(width, 1), target_NW.split(width, 1), strict=True))
    # With several chunks, each one's logits are made again in the backward pass rather than kept.
    several = len(chunks) > 1 and torch.is_grad_enabled()
    parts = [checkpoint(head, *each, use_reentrant=False) if several else head(*each) for each in chunks]
    logps_T, entropy_T = torch.cat(parts, -1).flatten(1)[:, lanes.cell_T]
    return logps_T, entropy_T.detach()


def _reference(stack: Any) -> Any:
    """The models that the nodes began with, stacked at the first update."""
    if stack.reference is None:
        stack.reference = stack.alike([stack.learners[number].reference.copied for number in range(stack.size)])
    return stack.reference
