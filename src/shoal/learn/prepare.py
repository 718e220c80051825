"""From scored rollouts to what an update trains on: tokens with advantages and weights, packed into rows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import msgspec

from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.learn.advantages import advantages
from shoal.learn.batch import Row, Trained, make_rows
from shoal.learn.limit import gradient_size, maker_scales
from shoal.learn.losses import token_weights
from shoal.protocols import TrainablePolicy
from shoal.rollout import Completion, FinishReason, Scored

Observed = Mapping[int, Sequence[int]]
"""`Trained.observed`"""


@dataclass(frozen=True)
class Group:
    """A rollout in an update."""

    scored: Scored
    ids: list[list[int]]
    """The tokens of each completion."""
    observed: list[Observed]
    """What an environment says in each of them."""
    advantages: list[float]
    size: float
    """`limit.gradient_size`; 0 if there is nothing to learn from it."""

    @property
    def missing(self) -> float:
        """The sum of the positive advantages of completions that are not trained on."""
        return sum(max(A, 0.0) for ids, A in zip(self.ids, self.advantages, strict=True) if not ids)


def make_groups(
    scored: Sequence[Scored], policy: TrainablePolicy, config: LearnerConfig, peers: PeersConfig, seed: int
) -> list[Group]:
    """The rollouts with tokens and advantages, in an order of `seed`: sums depend on it in their last digits."""
    order = list(scored)
    random.Random(seed).shuffle(order)
    read = [_read(s, policy, config) for s in order]
    compared = advantages(
        [s.rewards for s, _, _ in read],
        config.scale_rewards,
        [s.baseline for s, _, _ in read],
        [peers.baseline_shift if s.from_peer and s.has_signal else 0.0 for s, _, _ in read],
    )
    return [
        Group(s, ids, observed, A, gradient_size(A, list(map(len, ids)), config.loss_type) if s.has_signal else 0.0)
        for (s, ids, observed), A in zip(read, compared, strict=True)
    ]


def mean_own_size(groups: Sequence[Group]) -> float | None:
    """The mean gradient size of own groups with something to learn; None if there are none."""
    own = [group.size for group in groups if group.size and not group.scored.from_peer]
    return fmean(own) if own else None


def pack(
    groups: Sequence[Group],
    policy: TrainablePolicy,
    config: LearnerConfig,
    peers: PeersConfig,
    own_size: float | None,
    token_budget: int,
) -> list[Row]:
    """All that is trained on, as rows. Groups without advantage count in the averages, as in TRL, but are not computed
    (unless `beta` asks for their divergence). `own_size`: see `limit.maker_scales`."""
    lengths = [len(ids) for group in groups for ids in group.ids]
    weights = iter(token_weights(lengths, config.loss_type, policy.sampling.max_completion_length))
    foreign = [group for group in groups if group.scored.from_peer and group.scored.has_signal]
    scales = maker_scales([(g.scored.rollout.node, g.size) for g in foreign], own_size, peers.limit)
    rows: list[Row] = []
    offset = 0
    for number, group in enumerate(groups):
        maker, is_foreign = group.scored.rollout.node, group.scored.from_peer
        scale = scales.get(maker, 1.0) if is_foreign else 1.0
        sequences = []
        for ids, observed, advantage in zip(group.ids, group.observed, group.advantages, strict=True):
            weight = scale * next(weights)
            if ids and (group.scored.has_signal or config.beta):
                sequences.append(Trained(ids, advantage, weight, offset, maker, is_foreign, number, observed))
                offset += len(ids)
        if sequences:
            rows += make_rows(policy.prompt_ids(group.scored.question), sequences, token_budget)
    return rows


def _read(
    scored: Scored, policy: TrainablePolicy, config: LearnerConfig
) -> tuple[Scored, list[list[int]], list[Observed]]:
    """The rollout and the tokens of its completions, the policy's and an environment's. Another node's completion
    without tokens to train on, such as one longer than `max_completion_length`, leaves its group: others are not
    compared with what the policy can never say. A question that the policy cannot read teaches it nothing.
    """

    def is_masked(completion: Completion) -> bool:
        return config.mask_truncated_completions and completion.finish_reason == FinishReason.length

    too_long = scored.from_peer and not policy.has_room(scored.question)

    def tokens(completion: Completion) -> tuple[list[int], Observed]:
        if is_masked(completion) or too_long:
            return [], {}
        if len(completion.parts) > 1 and completion.observations:
            return policy.conversation_ids(scored.question, completion)
        return policy.completion_ids(completion), {}

    completions = scored.rollout.completions
    read = [tokens(completion) for completion in completions]
    ids, observed = [each for each, _ in read], [each for _, each in read]
    kept = [i for i, c in enumerate(completions) if ids[i] or is_masked(c)]
    if not scored.from_peer or len(kept) in (0, len(ids)):
        return scored, ids, observed
    rollout = msgspec.structs.replace(scored.rollout, completions=tuple(completions[i] for i in kept))
    rewards = tuple(scored.rewards[i] for i in kept)
    kept_scored = msgspec.structs.replace(scored, rollout=rollout, rewards=rewards)
    return kept_scored, [ids[i] for i in kept], [observed[i] for i in kept]
