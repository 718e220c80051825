"""From scored rollouts to what an update trains on: tokens with advantages and weights, packed into rows."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median_low

import msgspec

from shoal.config.sections import LearnerConfig
from shoal.learn.advantages import advantages
from shoal.learn.batch import Row, Trained, make_rows
from shoal.learn.losses.base import Average
from shoal.policy.language import LanguagePolicy
from shoal.policy.reading import most_tokens
from shoal.rollout import Completion, Scored

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
    """`Average.gradient_size`; 0 if there is nothing to learn from it."""


def make_groups(
    scored: Sequence[Scored],
    policy: LanguagePolicy,
    config: LearnerConfig,
    baseline_shift: float,
    average: Average,
    seed: int,
) -> list[Group]:
    """The rollouts with tokens and advantages, in an order of `seed`. `baseline_shift`: of peers' rollouts."""
    order = list(scored)
    random.Random(seed).shuffle(order)
    own = [len(policy.prompt_ids(s.question)) for s in order if not s.from_peer]
    most = min(most_tokens(own) if own else policy.context, policy.context - policy.sampling.max_completion_length)
    read = [_read(s, policy, most) for s in order]
    compared = advantages(
        [s.rewards for s, _, _ in read],
        config.scale_rewards,
        [s.baseline for s, _, _ in read],
        [baseline_shift if s.from_peer and s.has_signal else 0.0 for s, _, _ in read],
    )
    weighted = [[s.weight * a for a in A] for (s, _, _), A in zip(read, compared, strict=True)]
    return [
        Group(s, ids, observed, A, average.gradient_size(A, list(map(len, ids))) if s.has_signal else 0.0)
        for (s, ids, observed), A in zip(read, weighted, strict=True)
    ]


def mean_own_size(groups: Sequence[Group]) -> float | None:
    """The mean gradient size of own groups with something to learn; None if there are none."""
    own = [group.size for group in groups if group.size and not group.scored.from_peer]
    return fmean(own) if own else None


def pack(
    groups: Sequence[Group],
    policy: LanguagePolicy,
    average: Average,
    own_size: float | None,
    limit: float,
    token_budget: int,
) -> list[Row]:
    """All that is trained on, as rows. Groups without advantage count in the averages, as in TRL, but are not computed.
    `own_size` and `limit`: see `maker_scales`."""
    lengths = [len(ids) for group in groups for ids in group.ids]
    weights = iter(average.weights(lengths, policy.sampling.max_completion_length))
    of_peers = [group for group in groups if group.scored.from_peer and group.scored.has_signal]
    scales = maker_scales([(g.scored.rollout.node, g.size) for g in of_peers], own_size, limit)
    rows: list[Row] = []
    offset = 0
    for group in groups:
        maker, from_peer = group.scored.rollout.node, group.scored.from_peer
        scale = scales.get(maker, 1.0) if from_peer else 1.0
        sequences = []
        for ids, observed, advantage in zip(group.ids, group.observed, group.advantages, strict=True):
            weight = scale * next(weights)
            if ids and group.scored.has_signal:
                sequences.append(Trained(ids, advantage, weight, offset, maker, from_peer, observed))
                offset += len(ids)
        if sequences:
            rows += make_rows(policy.prompt_ids(group.scored.question), sequences, token_budget)
    return rows


# The limit on what one maker contributes to an update: its groups count no more, on average, than own ones. A hostile
# group can be half right and as long as allowed. Its gradient is then many times as large as an honest one's.


def maker_scales(sizes: Sequence[tuple[str, float]], own: float | None, limit: float) -> dict[str, float]:
    """A factor for the weights of each maker's tokens: min(1, limit * reference / mean size of its groups).

    `sizes`: maker and gradient size of each group of a peer. The reference is `own`, the mean size of the node's own
    groups, which nobody else can change; while it is None, the lower median of the makers' means. Nothing is scaled up,
    and with a `limit` of 0 nothing is scaled.
    """
    groups: dict[str, list[float]] = defaultdict(list)
    for maker, size in sizes:
        groups[maker].append(size)
    means = {maker: fmean(of_maker) for maker, of_maker in groups.items()}
    if not means or not limit:
        return dict.fromkeys(means, 1.0)
    most = limit * (median_low(means.values()) if own is None else own)
    return {maker: min(1.0, most / mean) if mean else 1.0 for maker, mean in means.items()}


def _read(scored: Scored, policy: LanguagePolicy, most: int) -> tuple[Scored, list[list[int]], list[Observed]]:
    """The rollout and the tokens of its completions, the policy's and an environment's. A peer's completion
    without tokens to train on, such as one longer than `max_completion_length`, leaves its group: others are not
    compared with what the policy can never say. A question of a peer with more than `most` tokens teaches nothing.
    """

    too_long = scored.from_peer and len(policy.prompt_ids(scored.question)) > most

    def tokens(completion: Completion) -> tuple[list[int], Observed]:
        if too_long:
            return [], {}
        if len(completion.parts) > 1 and completion.observations:
            return policy.conversation_ids(scored.question, completion)
        return policy.completion_ids(completion), {}

    completions = scored.rollout.completions
    read = [tokens(completion) for completion in completions]
    ids, observed = [each for each, _ in read], [each for _, each in read]
    kept = [i for i, tokens_of in enumerate(ids) if tokens_of]
    if not scored.from_peer or len(kept) in (0, len(ids)):
        return scored, ids, observed
    rollout = msgspec.structs.replace(scored.rollout, completions=tuple(completions[i] for i in kept))
    rewards = tuple(scored.rewards[i] for i in kept)
    kept_scored = msgspec.structs.replace(scored, rollout=rollout, rewards=rewards)
    return kept_scored, [ids[i] for i in kept], [observed[i] for i in kept]
