"""The update: policy-gradient steps on groups of scored rollouts, own and foreign alike."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.config import LearnerConfig
from shoal.learn.adapters import Reference, adapter_dropouts, dropping_out
from shoal.learn.advantages import advantages
from shoal.learn.batch import MicroBatch, Row, Trained, make_rows, micro_batches
from shoal.learn.critic import Critic, Judgement, judge
from shoal.learn.logprobs import check_architecture, token_logprobs, trained_hidden
from shoal.learn.losses import clipped_value_loss, kl_k3, policy_loss, token_weights
from shoal.learn.optim import make_optimizer
from shoal.protocols import TrainablePolicy
from shoal.rollout import Completion, FinishReason, Scored

LARGE = 50_000_000
"""Parameters from which gradient checkpointing is the default."""


class GRPOLearner:
    """Group-relative policy optimisation (arXiv 2402.03300) with the variants that `LearnerConfig` names.

    One call of `update` is one round: `num_iterations` passes over its rollouts in `num_minibatches` steps each. Groups
    without advantage count in the averages, as in TRL, but are not computed (unless `beta` asks for their divergence).

    With `advantage = "gae"` it is PPO (arXiv 1707.06347): a critic says what each token was worth, and learns from all
    groups, those of equal rewards too. Its loss is averaged as the policy's.
    """

    def __init__(self, policy: TrainablePolicy, config: LearnerConfig, learning_rate: float) -> None:
        self.policy = policy
        self.config = config
        self.model: Any = policy.lm.model
        check_architecture(self.model, policy.name)
        self.optimizer = make_optimizer(self.model.parameters(), config, learning_rate, policy.placement.device)
        self.checkpointed = self._checkpointed_layers()
        self.reference = Reference(self.model) if config.beta else None
        self.dropouts = adapter_dropouts(self.model)
        self.critic = self._critic() if config.advantage == "gae" else None
        self.skipped_steps = 0
        budget = config.tokens_per_micro_batch
        self.token_budget = (16_384 if policy.placement.device.type == "cuda" else 1024) if budget == "auto" else budget

    def update(self, scored: Sequence[Scored], seed: int = 0) -> dict[str, float]:
        """Learns from `scored` and returns the update's metrics, in TRL's names. `seed`: of minibatches and dropout."""
        metrics = _Sums()
        minibatches = self._minibatches(scored, seed)
        slots = 1 + max((s.last_slot for rows in minibatches for row in rows for s in row.sequences), default=-1)
        rows_of_all = [row for rows in minibatches for row in rows]
        several_steps = self.config.num_iterations * len(minibatches) > 1
        old_logps = self._logprobs(self.model, rows_of_all, slots) if several_steps or self.dropouts else None
        ref_logps = None
        if self.reference is not None:
            with self.reference.restored() as model:
                ref_logps = self._logprobs(model, rows_of_all, slots)
        judged = self._judge(rows_of_all, slots) if self.critic is not None and rows_of_all else None
        with dropping_out(self.dropouts, seed, self.policy.placement.device):
            for _ in range(self.config.num_iterations):
                for rows in minibatches:
                    self._step(rows, old_logps, ref_logps, judged, metrics)
        return metrics.means(self.skipped_steps) | (judged.metrics() if judged is not None else {})

    def _minibatches(self, scored: Sequence[Scored], seed: int) -> list[list[Row]]:
        """The rollouts as packed rows, in as many shares as there are steps, less those with nothing to learn."""
        config, order = self.config, list(scored)
        random.Random(seed).shuffle(order)
        count = max(1, min(config.num_minibatches, len(order)))
        groups = [[self._trained_ids(c) for c in s.rollout.completions] for s in order]
        tokens_per_step = sum(len(ids) for group in groups for ids in group) / count
        compared = advantages([s.rewards for s in order], config.advantage, config.scale_rewards)
        everything = list(zip(order, groups, compared, strict=True))
        slot, minibatches = 0, []
        for share in (everything[i::count] for i in range(count)):
            lengths = [len(ids) for _, group, _ in share for ids in group]
            longest = self.policy.sampling.max_completion_length
            weights = iter(token_weights(lengths, config.loss_type, longest, tokens_per_step))
            rows: list[Row] = []
            for s, group, advantages_of_group in share:
                sequences = []
                for ids, advantage, reward in zip(group, advantages_of_group, s.rewards, strict=True):
                    weight = next(weights)
                    if ids and (s.live or config.beta or self.critic is not None):
                        sequences.append(Trained(ids, advantage, weight, slot, reward))
                        slot += len(ids)
                rows += make_rows(self.policy.prompt_ids(s.question), sequences, self.token_budget)
            minibatches.append(rows)
        return [rows for rows in minibatches if rows]

    def _trained_ids(self, completion: Completion) -> list[int]:
        if self.config.mask_truncated_completions and completion.finish_reason == FinishReason.length:
            return []
        return self.policy.completion_ids(completion)

    def _step(
        self,
        rows: list[Row],
        old_logps: torch.Tensor | None,
        ref_logps: torch.Tensor | None,
        judged: Judgement | None,
        metrics: _Sums,
    ) -> None:
        """One optimiser step on `rows`; none, but a count, if the gradient is not finite."""
        config = self.config
        self._zero_grad()
        for batch in self._micro_batches(rows):
            self._checkpointing(True)
            with self.policy.placement.autocast():
                hidden_TD = trained_hidden(self.model, batch)
                logps_T, entropy_T = token_logprobs(self.model, batch, self.policy.sampling.temperature, hidden_TD)
            self._checkpointing(False)
            old_T = logps_T.detach() if old_logps is None else old_logps[batch.slots_T]
            advantages_T = batch.advantages_T if judged is None else judged.advantages_T[batch.slots_T]
            loss_T, low_T, high_T = policy_loss(
                config.loss_type,
                logps_T,
                old_T,
                advantages_T,
                batch.sequences_T,
                config.epsilon,
                config.epsilon_high,
            )
            if ref_logps is not None:
                kl_T = kl_k3(logps_T, ref_logps[batch.slots_T])
                loss_T = loss_T + config.beta * kl_T
                metrics.add(kl=kl_T.sum())
            if self.critic is not None and judged is not None:
                old_values_T, returns_T = judged.values_T[batch.slots_T], judged.returns_T[batch.slots_T]
                value_T = clipped_value_loss(self.critic(hidden_TD), old_values_T, returns_T, config.cliprange_value)
                loss_T = loss_T + config.vf_coef * value_T
                metrics.add(value_loss=value_T.sum())
            loss = (loss_T * batch.weights_T).sum()
            loss.backward()
            metrics.add(len(loss_T), loss=loss, entropy=entropy_T.sum(), low=low_T.sum(), high=high_T.sum())
        critic = [] if self.critic is None else list(self.critic.parameters())
        norm = torch.nn.utils.clip_grad_norm_([*self.model.parameters(), *critic], config.max_grad_norm)
        if torch.isfinite(norm):
            self.optimizer.step()
            if self.critic is not None:
                self.critic.optimizer.step()
            metrics.steps += 1
            metrics.add(grad_norm=norm)
        else:
            self.skipped_steps += 1
        self._zero_grad()

    def _zero_grad(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if self.critic is not None:
            self.critic.optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _logprobs(self, model: Any, rows: list[Row], slots: int) -> torch.Tensor:
        """Log-probabilities under `model` as it is now, at the slots of their tokens."""
        dtype = torch.promote_types(model.dtype, torch.float32)
        logps = torch.zeros(slots, dtype=dtype, device=self.policy.placement.device)
        for batch in self._micro_batches(rows):
            with self.policy.placement.autocast():
                logps[batch.slots_T], _ = token_logprobs(model, batch, self.policy.sampling.temperature)
        return logps

    def _critic(self) -> Critic:
        size = self.model.get_output_embeddings().weight.shape[1]
        return Critic(size, self.config.critic_learning_rate, self.policy.placement.device, self.model.dtype)

    @torch.no_grad()
    def _judge(self, rows: list[Row], slots: int) -> Judgement:
        """What the critic says before the first step, at the slots of the tokens."""
        assert self.critic is not None
        values_T = self.critic.head.weight.new_zeros(slots)
        for batch in self._micro_batches(rows):
            with self.policy.placement.autocast():
                hidden_TD = trained_hidden(self.model, batch)
            values_T[batch.slots_T] = self.critic(hidden_TD)
        sequences = [sequence for row in rows for sequence in row.sequences]
        return judge(values_T, sequences, self.config)

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
        return micro_batches(rows, self.token_budget, self.policy.placement.device)

    def save(self, folder: Path) -> None:
        """Writes the optimiser's state; the weights are the policy's to save."""
        state = {"optimizer": self.optimizer.state_dict(), "skipped_steps": self.skipped_steps}
        if self.reference is not None:
            state["reference"] = self.reference.state_dict()
        if self.critic is not None:
            state["critic"] = self.critic.state()
        torch.save(state, folder / "learner.pt")

    def load(self, folder: Path) -> None:
        state = torch.load(folder / "learner.pt", map_location=self.policy.placement.device, weights_only=True)
        self.optimizer.load_state_dict(state["optimizer"])
        self.skipped_steps = state["skipped_steps"]
        if self.reference is not None:
            self.reference.load_state_dict(state["reference"])
        if self.critic is not None:
            self.critic.restore(state["critic"])


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
        return metrics | {name: sums[name] / tokens for name in ("kl", "value_loss") if name in sums}
