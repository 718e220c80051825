"""The update: policy-gradient steps on groups of scored rollouts, own and foreign alike."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.config import LearnerConfig
from shoal.learn.advantages import group_advantages
from shoal.learn.batch import MicroBatch, Row, Trained, make_rows, micro_batches
from shoal.learn.logprobs import check_architecture, token_logprobs
from shoal.learn.losses import clipped_surrogate, kl_k3, token_weights
from shoal.protocols import TrainablePolicy
from shoal.rollout import Completion, FinishReason, Scored

LARGE = 50_000_000
"""Parameters from which gradient checkpointing is the default."""


class GRPOLearner:
    """Group-relative policy optimisation (arXiv 2402.03300) with the variants that `LearnerConfig` names.

    One call of `update` is one round: `num_iterations` passes over its rollouts in `num_minibatches` steps each. Groups
    without advantage count in the averages, as in TRL, but are not computed (unless `beta` asks for their divergence).
    """

    def __init__(self, policy: TrainablePolicy, config: LearnerConfig, learning_rate: float) -> None:
        self.policy = policy
        self.config = config
        self.model: Any = policy.lm.model
        check_architecture(self.model, policy.name)
        self.optimizer = torch.optim.AdamW(
            [p for p in self.model.parameters() if p.requires_grad],
            lr=learning_rate,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.checkpointed = self._checkpointed_layers()
        self.reference = copy.deepcopy(self.model).requires_grad_(False) if config.beta else None
        self.skipped_steps = 0

    def update(self, scored: Sequence[Scored], seed: int = 0) -> dict[str, float]:
        """Learns from `scored` and returns the update's metrics, in TRL's names. `seed` shuffles minibatches."""
        metrics = _Sums()
        minibatches = self._minibatches(scored, seed)
        slots = 1 + max((s.last_slot for rows in minibatches for row in rows for s in row.sequences), default=-1)
        rows_of_all = [row for rows in minibatches for row in rows]
        several_steps = self.config.num_iterations * len(minibatches) > 1
        old_logps = self._logprobs(self.model, rows_of_all, slots) if several_steps else None
        ref_logps = self._logprobs(self.reference, rows_of_all, slots) if self.reference is not None else None
        for _ in range(self.config.num_iterations):
            for rows in minibatches:
                self._step(rows, old_logps, ref_logps, metrics)
        return metrics.means(self.skipped_steps)

    def _minibatches(self, scored: Sequence[Scored], seed: int) -> list[list[Row]]:
        """The rollouts as packed rows, in as many shares as there are steps, less those with nothing to learn."""
        config, order = self.config, list(scored)
        random.Random(seed).shuffle(order)
        count = max(1, min(config.num_minibatches, len(order)))
        slot, minibatches = 0, []
        for share in (order[i::count] for i in range(count)):
            groups = [[self._trained_ids(c) for c in s.rollout.completions] for s in share]
            lengths = [len(ids) for group in groups for ids in group]
            weights = iter(token_weights(lengths, config.loss_type, self.policy.sampling.max_completion_length))
            rows: list[Row] = []
            for s, group in zip(share, groups, strict=True):
                sequences = []
                for ids, advantage in zip(group, group_advantages(s.rewards, config.scale_rewards), strict=True):
                    weight = next(weights)
                    if ids and (s.live or config.beta):
                        sequences.append(Trained(ids, advantage, weight, slot))
                        slot += len(ids)
                rows += make_rows(self.policy.prompt_ids(s.question), sequences, config.tokens_per_micro_batch)
            minibatches.append(rows)
        return [rows for rows in minibatches if rows]

    def _trained_ids(self, completion: Completion) -> list[int]:
        if self.config.mask_truncated_completions and completion.finish_reason == FinishReason.length:
            return []
        return self.policy.completion_ids(completion)

    def _step(
        self, rows: list[Row], old_logps: torch.Tensor | None, ref_logps: torch.Tensor | None, metrics: _Sums
    ) -> None:
        """One optimiser step on `rows`; none, but a count, if the gradient is not finite."""
        config = self.config
        self.optimizer.zero_grad(set_to_none=True)
        for batch in self._micro_batches(rows):
            self._checkpointing(True)
            with self.policy.placement.autocast():
                logps_T, entropy_T = token_logprobs(self.model, batch, self.policy.sampling.temperature)
            self._checkpointing(False)
            old_T = logps_T.detach() if old_logps is None else old_logps[batch.slots_T]
            loss_T = clipped_surrogate(logps_T, old_T, batch.advantages_T, config.epsilon, config.epsilon_high)
            if ref_logps is not None:
                kl_T = kl_k3(logps_T, ref_logps[batch.slots_T])
                loss_T = loss_T + config.beta * kl_T
                metrics.add(kl=kl_T.sum())
            loss = (loss_T * batch.weights_T).sum()
            loss.backward()
            ratio_T = torch.exp(logps_T.detach() - old_T)
            low_T = (ratio_T < 1 - config.epsilon) & (batch.advantages_T < 0)
            high_T = (ratio_T > 1 + config.epsilon_high) & (batch.advantages_T > 0)
            metrics.add(len(loss_T), loss=loss, entropy=entropy_T.sum(), low=low_T.sum(), high=high_T.sum())
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.max_grad_norm)
        if torch.isfinite(norm):
            self.optimizer.step()
            metrics.steps += 1
            metrics.add(grad_norm=norm)
        else:
            self.skipped_steps += 1
        self.optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _logprobs(self, model: Any, rows: list[Row], slots: int) -> torch.Tensor:
        """Log-probabilities under `model` as it is now, at the slots of their tokens."""
        dtype = torch.promote_types(model.dtype, torch.float32)
        logps = torch.zeros(slots, dtype=dtype, device=self.policy.placement.device)
        for batch in self._micro_batches(rows):
            with self.policy.placement.autocast():
                logps[batch.slots_T], _ = token_logprobs(model, batch, self.policy.sampling.temperature)
        return logps

    def _checkpointed_layers(self) -> list[GradientCheckpointingLayer]:
        """The layers that keep nothing but their input for the backward pass."""
        wanted = self.config.gradient_checkpointing
        if wanted == "auto":
            wanted = self.model.num_parameters() > LARGE
        if not wanted:
            return []
        with warnings.catch_warnings():  # transformers 5.2x renames it, and 5.0 has the old name alone
            warnings.simplefilter("ignore", FutureWarning)
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        return [m for m in self.model.modules() if isinstance(m, GradientCheckpointingLayer)]

    def _checkpointing(self, on: bool) -> None:
        """transformers takes a layer's `training` for the switch; what is in the layer stays in evaluation mode."""
        for layer in self.checkpointed:
            layer.training = on

    def _micro_batches(self, rows: list[Row]) -> Iterator[MicroBatch]:
        return micro_batches(rows, self.config.tokens_per_micro_batch, self.policy.placement.device)

    def save(self, folder: Path) -> None:
        """Writes the optimiser's state; the weights are the policy's to save."""
        state = {"optimizer": self.optimizer.state_dict(), "skipped_steps": self.skipped_steps}
        if self.reference is not None:
            state["reference"] = self.reference.state_dict()
        torch.save(state, folder / "learner.pt")

    def load(self, folder: Path) -> None:
        state = torch.load(folder / "learner.pt", map_location=self.policy.placement.device, weights_only=True)
        self.optimizer.load_state_dict(state["optimizer"])
        self.skipped_steps = state["skipped_steps"]
        if self.reference is not None:
            self.reference.load_state_dict(state["reference"])


class _Sums:
    """Metrics summed over micro-batches; read from the device once, at the end."""

    def __init__(self) -> None:
        self.tokens = 0
        self.steps = 0
        self.sums: dict[str, torch.Tensor] = {}

    def add(self, tokens: int = 0, **values: torch.Tensor) -> None:
        self.tokens += tokens
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value.detach()

    def means(self, skipped_steps: int) -> dict[str, float]:
        sums = {name: float(value) for name, value in self.sums.items()}
        tokens, steps = max(self.tokens, 1), max(self.steps, 1)
        metrics = {
            "loss": sums.get("loss", 0.0) / steps,
            "grad_norm": sums.get("grad_norm", 0.0) / steps,
            "entropy": sums.get("entropy", 0.0) / tokens,
            "clip_ratio/low_mean": sums.get("low", 0.0) / tokens,
            "clip_ratio/high_mean": sums.get("high", 0.0) / tokens,
            "tokens/trained": self.tokens,
            "learner/steps": self.steps,
            "learner/skipped_steps": skipped_steps,
        }
        return metrics | ({"kl": sums["kl"] / tokens} if "kl" in sums else {})
