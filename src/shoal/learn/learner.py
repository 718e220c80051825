"""The update: policy-gradient steps on groups of scored rollouts, own and foreign alike."""

from __future__ import annotations

import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.config.learner import LearnerConfig
from shoal.learn.adapters import Reference, adapter_dropouts, dropping_out
from shoal.learn.advantages import advantages
from shoal.learn.batch import MicroBatch, Row, Trained, make_rows, micro_batches, split
from shoal.learn.critic import Critic, Judgement, judge
from shoal.learn.external import External, Report, balanced_weights, running_mean, sampled_nll
from shoal.learn.limit import maker_scales, pull
from shoal.learn.logprobs import check_architecture, token_logprobs, trained_hidden
from shoal.learn.losses import clipped_value_loss, kl_k3, policy_loss, token_weights
from shoal.learn.memory import token_budget, worth_checkpointing
from shoal.learn.optim import make_optimizer
from shoal.learn.sums import Sums
from shoal.parallel.ranks import ALONE, Ranks
from shoal.protocols import TrainablePolicy
from shoal.rollout import Completion, FinishReason, Scored

if TYPE_CHECKING:
    from shoal.parallel.sharding import Sharded, ShardedReference

T = TypeVar("T")
Group = tuple[Scored, list[list[int]]]
"""A rollout with the tokens of each of its completions."""


class GRPOLearner:
    """Group-relative policy optimisation (arXiv 2402.03300) with the variants that `LearnerConfig` names.

    One call of `update` is one round: `num_iterations` passes over its rollouts in `num_minibatches` steps each. Groups
    without advantage count in the averages, as in TRL, but are not computed (unless `beta` asks for their divergence).

    With `advantage = "gae"` it is PPO (arXiv 1707.06347): a critic says what each token was worth, and learns from all
    groups, those of equal rewards too. Its loss is averaged as the policy's.

    Rollouts that are `foreign` count as `external` says, less than own ones, and pull no more than these (`limit`).

    With several ranks each computes some of the rows, and gradients are summed: losses are weighted for the whole step
    beforehand. All ranks then take the same step.
    """

    def __init__(
        self,
        policy: TrainablePolicy,
        config: LearnerConfig,
        learning_rate: float,
        ranks: Ranks = ALONE,
        sharded: Sharded | None = None,
        mixture: tuple[int, int] | None = None,
    ) -> None:
        """`sharded`: of the policy's model, where no rank holds all of it; its architecture has been checked before.
        `mixture`: (I, J), for `balance`; without it nothing is balanced."""
        self.policy = policy
        self.config = config
        self.ranks = ranks
        self.sharded = sharded
        self.mixture = mixture if config.balance == "source" and mixture and sum(mixture) else None
        self.model: Any = policy.lm.model
        if sharded is None:
            check_architecture(self.model, policy.name)
        self.optimizer = make_optimizer(self.model.parameters(), config, learning_rate, policy.placement.device)
        self.token_budget = token_budget(config.tokens_per_micro_batch, policy.placement.device)
        self.checkpointed = self._checkpointed_layers()
        self.reference = self._reference() if config.beta else None
        self.dropouts = adapter_dropouts(self.model)
        self.critic = self._critic() if config.advantage == "gae" else None
        self.skipped_steps = 0
        self.own_nll: float | None = None
        """Nats for each token of own completions: a running mean over updates, None before the first."""
        self.own_pull: float | None = None
        """Of own groups with something to learn (`limit`): a running mean over updates, None before the first."""
        self.pull: dict[str, float] = defaultdict(float)
        """Of each node's rollouts in the last update: that sum over their tokens (`shares`)."""

    def update(self, scored: Sequence[Scored], seed: int = 0) -> dict[str, float]:
        """Learns from `scored` and returns the update's metrics, in TRL's names. `seed`: of minibatches and dropout."""
        metrics = Sums()
        sampled = self._observe_own(scored)
        minibatches = self._minibatches(scored, seed)
        rows_of_all = [row for rows in minibatches for row in rows]
        slots = 1 + max((s.last_slot for row in rows_of_all for s in row.sequences), default=-1)
        several_steps = self.config.num_iterations * len(minibatches) > 1
        known = several_steps or self.dropouts or (self.config.external_gate and split(rows_of_all))
        old_logps = self._logprobs(self.model, rows_of_all, slots) if known else None
        ref_logps = None
        if self.reference is not None:
            with self.reference.restored() as model:
                ref_logps = self._logprobs(model, rows_of_all, slots)
        judged = self._judge(rows_of_all, slots) if self.critic is not None and rows_of_all else None
        external = self._external(rows_of_all, slots, judged, old_logps)
        with dropping_out(self.dropouts, seed + self.ranks.rank, self.policy.placement.device):
            for _ in range(self.config.num_iterations):
                for rows in minibatches:
                    self._step(rows, old_logps, ref_logps, judged, external, metrics)
        metrics.gather(self.ranks)
        report = Report()
        if external is not None:
            external.gather(self.ranks)
            (report,) = external.reports()
        found = metrics.means(self.skipped_steps) | (judged.metrics() if judged is not None else {})
        return found | self._account(minibatches, report, sampled)

    def _observe_own(self, scored: Sequence[Scored]) -> bool:
        """Brings `own_nll` up to date, if own completions tell how they were sampled; whether they do."""
        nll = sampled_nll(scored)
        self.own_nll = running_mean(self.own_nll, nll)
        return nll is not None

    def _account(self, minibatches: list[list[Row]], report: Report, sampled: bool) -> dict[str, float]:
        """The metrics of other nodes' completions, after an update, and `shares`."""
        if not sampled:
            self.own_nll = running_mean(self.own_nll, report.trained_nll)
        self.pull.clear()
        sequences = [s for rows in minibatches for row in rows for s in row.sequences]
        for s in sorted(sequences, key=lambda s: s.slot):
            self.pull[s.node] += abs(s.advantage) * s.weight * len(s.token_ids) * report.weights.get(s.slot, 1.0)
        return report.metrics | self.shares()

    def shares(self) -> dict[str, float]:
        """Each node's share of the last update's gradient: of the sum of |advantage| times weights over all tokens."""
        total = sum(self.pull.values())
        return {f"gradient/from/{node}": pull / total for node, pull in self.pull.items()} if total else {}

    def _minibatches(self, scored: Sequence[Scored], seed: int) -> list[list[Row]]:
        """The rollouts as packed rows, in as many shares as there are steps, less those with nothing to learn."""
        config, order = self.config, list(scored)
        random.Random(seed).shuffle(order)
        count = max(1, min(config.num_minibatches, len(order)))
        read = [self._read(s) for s in order]
        order, groups = [s for s, _ in read], [group for _, group in read]
        compared = advantages(
            [s.rewards for s in order],
            config.advantage,
            config.scale_rewards,
            [s.baseline for s in order],
            [config.external_baseline_shift if s.foreign and s.instructive else 0.0 for s in order],
        )
        everything = list(zip(order, groups, compared, strict=True))
        weigh = self._weighing([(s, group) for s, group, _ in everything], count)
        scales = self._scales(everything)
        slot, minibatches = 0, []
        for share in (everything[i::count] for i in range(count)):
            weights = iter(weigh([(s, group) for s, group, _ in share]))
            rows: list[Row] = []
            for s, group, advantages_of_group in share:
                sequences, first = [], slot
                scale = scales.get(s.rollout.node, 1.0) if s.foreign else 1.0
                missing = sum(max(A, 0.0) for ids, A in zip(group, advantages_of_group, strict=True) if not ids)
                for c, ids, advantage, reward in zip(
                    s.rollout.completions, group, advantages_of_group, s.rewards, strict=True
                ):
                    weight = scale * next(weights)
                    if ids and (self._counts(s) or (config.beta and self.mixture is None)):
                        told = c.logprobs if s.foreign and c.logprobs and len(c.logprobs) == len(ids) else None
                        sequences.append(
                            Trained(
                                ids, advantage, weight, slot, reward, s.rollout.node, s.foreign, told, first, missing
                            )
                        )
                        slot += len(ids)
                rows += make_rows(self.policy.prompt_ids(s.question), sequences, self.token_budget)
            minibatches.append(rows)
        return [rows for rows in minibatches if rows]

    def _weighing(self, groups: Sequence[Group], count: int) -> Callable[[Sequence[Group]], list[float]]:
        """What weighs the tokens of a step, one number for each completion, given those of all `count` steps."""
        config, longest = self.config, self.policy.sampling.max_completion_length

        def lengths_of(groups: Sequence[Group]) -> list[int]:
            return [len(ids) for _, group in groups for ids in group]

        if (mixture := self.mixture) is None:
            per_step = sum(lengths_of(groups)) / count
            return lambda share: token_weights(lengths_of(share), config.loss_type, longest, per_step)
        sources = [[each for each in groups if each[0].foreign is f and self._counts(each[0])] for f in (False, True)]
        own_per_step, foreign_per_step = (sum(lengths_of(source)) / count for source in sources)
        return lambda share: balanced_weights(
            lengths_of(share),
            [s.foreign for s, group in share for _ in group],
            [self._counts(s) for s, group in share for _ in group],
            mixture[0] / sum(mixture),
            config.loss_type,
            longest,
            (own_per_step, foreign_per_step),
        )

    def _scales(self, groups: Sequence[tuple[Scored, list[list[int]], list[float]]]) -> dict[str, float]:
        """What the tokens of each other maker are scaled by (`maker_scales`). It brings `own_pull` up to date. A critic
        says later what each token is worth, so then the lengths alone count."""
        pulls: dict[bool, list[tuple[str, float]]] = {False: [], True: []}
        for s, group, advantages_of_group in groups:
            if self._counts(s):
                worth = advantages_of_group if self.critic is None else [1.0] * len(group)
                pulls[s.foreign].append((s.rollout.node, pull(worth, list(map(len, group)), self.config.loss_type)))
        own = [value for _, value in pulls[False] if value]
        self.own_pull = running_mean(self.own_pull, fmean(own) if own else None)
        return maker_scales(pulls[True], self.own_pull, self.config.external_limit)

    def _counts(self, scored: Scored) -> bool:
        """Whether there is something to learn from it; to a critic there always is."""
        return scored.instructive or self.critic is not None

    def _read(self, scored: Scored) -> Group:
        """The rollout with the tokens of its completions. Another node's completion that has none to train on, as one
        longer than `max_completion_length`, leaves its group: the others are not compared with what the policy never
        gets to say."""
        ids = [self._trained_ids(completion) for completion in scored.rollout.completions]
        kept = [i for i, c in enumerate(scored.rollout.completions) if ids[i] or self._masked(c)]
        if not scored.foreign or len(kept) in (0, len(ids)):
            return scored, ids
        rollout = msgspec.structs.replace(
            scored.rollout, completions=tuple(scored.rollout.completions[i] for i in kept)
        )
        rewards = tuple(scored.rewards[i] for i in kept)
        return msgspec.structs.replace(scored, rollout=rollout, rewards=rewards), [ids[i] for i in kept]

    def _masked(self, completion: Completion) -> bool:
        return self.config.mask_truncated_completions and completion.finish_reason == FinishReason.length

    def _trained_ids(self, completion: Completion) -> list[int]:
        return [] if self._masked(completion) else self.policy.completion_ids(completion)

    def _step(
        self,
        rows: list[Row],
        old_logps: torch.Tensor | None,
        ref_logps: torch.Tensor | None,
        judged: Judgement | None,
        external: External | None,
        metrics: Sums,
    ) -> None:
        """One optimiser step on `rows`; none, but a count, if the gradient is not finite."""
        config = self.config
        self._zero_grad()
        for batch in self._micro_batches(rows):
            if batch is self._idle:
                hidden_TD, logps_T, _ = self._forward(batch)
                (0 * (logps_T.sum() + hidden_TD.sum())).backward()
                continue
            hidden_TD, logps_T, entropy_T = self._forward(batch)
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
            if external is not None:
                loss_T = loss_T * external.weigh(batch.slots_T, old_T, batch.sequences_T)
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
        norm = self._clip()
        if torch.isfinite(norm):
            self.optimizer.step()
            if self.critic is not None:
                self.critic.optimizer.step()
            metrics.steps += 1
            metrics.add(grad_norm=norm)
        else:
            self.skipped_steps += 1
        self._zero_grad()

    def _external(
        self, rows: list[Row], slots: int, judged: Judgement | None, old_logps: torch.Tensor | None
    ) -> External | None:
        """Other nodes' completions in `rows`, if there are any."""
        sequences = [s for row in rows for s in row.sequences]
        if not any(s.foreign for s in sequences):
            return None
        advantages_L = None if judged is None else judged.advantages_T
        return External([sequences], [self.own_nll], slots, self.config, self._zeros(0), advantages_L, old_logps)

    def _zeros(self, *shape: int) -> torch.Tensor:
        """Of the type and in the place of log-probabilities."""
        dtype = torch.promote_types(self.model.dtype, torch.float32)
        return torch.zeros(shape, dtype=dtype, device=self.policy.placement.device)

    def _forward(self, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """hidden_TD, logps_T and entropy_T, to be trained on."""

        def compute() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            hidden_TD = trained_hidden(self.model, batch)
            return hidden_TD, *token_logprobs(self.model, batch, self.policy.sampling.temperature, hidden_TD)

        self._checkpointing(True)
        found = self._pass(compute)
        self._checkpointing(False)
        return found

    def _pass(self, compute: Callable[[], T]) -> T:
        """`compute()`, which passes through the model once, wherever its weights are."""
        with self.policy.placement.autocast():
            return compute() if self.sharded is None else self.sharded(compute)

    def _clip(self) -> torch.Tensor:
        """Sums gradients over ranks, scales them to `max_grad_norm` if they are longer, and returns their norm."""
        critic = [] if self.critic is None else list(self.critic.parameters())
        weights, longest = list(self.model.parameters()), self.config.max_grad_norm
        if self.sharded is not None:
            self._sum_gradients(critic)
            return self.sharded.clip(weights, critic, longest)
        self._sum_gradients([*weights, *critic])
        return torch.nn.utils.clip_grad_norm_([*weights, *critic], longest)

    def _sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Over ranks, of which some may have had nothing to compute. What has no gradient anywhere gets none."""
        if self.ranks.size == 1 or not parameters:
            return
        found = torch.tensor([float(p.grad is not None) for p in parameters], device=self.policy.placement.device)
        self.ranks.add([found])
        touched = [p for p, times in zip(parameters, found.tolist(), strict=True) if times]
        for parameter in touched:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.ranks.add([parameter.grad for parameter in touched if parameter.grad is not None])

    def _zero_grad(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if self.critic is not None:
            self.critic.optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _logprobs(self, model: Any, rows: list[Row], slots: int) -> torch.Tensor:
        """Log-probabilities under `model` as it is now, at the slots of their tokens."""
        logps = self._zeros(slots)
        for batch in self._micro_batches(rows):
            logps_T, _ = self._pass(partial(token_logprobs, model, batch, self.policy.sampling.temperature))
            if batch is not self._idle:
                logps[batch.slots_T] = logps_T
        self.ranks.add([logps])
        return logps

    def _reference(self) -> Reference | ShardedReference:
        return Reference(self.model) if self.sharded is None else self.sharded.reference()

    def _critic(self) -> Critic:
        size = self.model.get_output_embeddings().weight.shape[1]
        return Critic(size, self.config.critic_learning_rate, self.policy.placement.device, self.model.dtype)

    @torch.no_grad()
    def _judge(self, rows: list[Row], slots: int) -> Judgement:
        """What the critic says before the first step, at the slots of the tokens."""
        assert self.critic is not None
        values_T = self.critic.head.weight.new_zeros(slots)
        for batch in self._micro_batches(rows):
            hidden_TD = self._pass(partial(trained_hidden, self.model, batch))
            if batch is not self._idle:
                values_T[batch.slots_T] = self.critic(hidden_TD)
        self.ranks.add([values_T])
        sequences = [sequence for row in rows for sequence in row.sequences]
        return judge(values_T, sequences, self.config)

    def _checkpointed_layers(self) -> list[GradientCheckpointingLayer]:
        """The layers that keep nothing but their input for the backward pass."""
        wanted = self.config.gradient_checkpointing
        if wanted == "auto":  # a model that is sharded is one that does not fit
            wanted = self.sharded is not None or worth_checkpointing(
                self.model, self.policy.placement, self.token_budget
            )
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
        """This rank's part of `rows`. With sharded weights, `_idle` as often as other ranks have more to compute."""
        device = self.policy.placement.device
        mine = micro_batches(self.ranks.deal(rows, len), self.token_budget, device)
        if self.sharded is None:
            return mine
        batches = list(mine)
        return iter([*batches, *[self._idle] * self.sharded.lag(len(batches))])

    @cached_property
    def _idle(self) -> MicroBatch:
        """The least there is to compute, to no effect."""
        row = Row([0], (Trained([0], 0.0, 0.0, 0),))
        return next(micro_batches([row], 1, self.policy.placement.device))

    def save(self, folder: Path) -> None:
        """Writes the optimiser's state; the weights are the policy's to save. Ranks but the leader write nothing, and
        have to call it only where weights are sharded."""
        optimizer = self.optimizer.state_dict() if self.sharded is None else self.sharded.state_of(self.optimizer)
        state = {"optimizer": optimizer, "skipped_steps": self.skipped_steps}
        state |= {"own_nll": self.own_nll, "own_pull": self.own_pull}
        if self.reference is not None:
            state["reference"] = self.reference.state_dict()
        if self.critic is not None:
            state["critic"] = self.critic.state()
        if self.ranks.leader:
            torch.save(state, folder / "learner.pt")

    def load(self, folder: Path) -> None:
        where = self.policy.placement.device if self.sharded is None else "cpu"  # as a whole it may not fit there
        state = torch.load(folder / "learner.pt", map_location=where, weights_only=True)
        if self.sharded is None:
            self.optimizer.load_state_dict(state["optimizer"])
        else:
            self.sharded.restore(self.optimizer, state["optimizer"])
        self.skipped_steps = state["skipped_steps"]
        self.own_nll, self.own_pull = state.get("own_nll"), state.get("own_pull")
        if self.reference is not None:
            self.reference.load_state_dict(state["reference"])
        if self.critic is not None:
            self.critic.restore(state["critic"])
