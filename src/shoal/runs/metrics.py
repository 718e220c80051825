"""The figures of a round: a line of `metrics.jsonl` for each node, and the rows of the run's tables.

The figures that count are `reward/local`, over a node's own unfiltered rollouts, and `eval/pass@1`, on held-out
questions. `reward/trained_on` is a diagnostic: choosing what to train on is enough to raise it.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from shoal.node import Node, RoundResult
from shoal.protocols import CountsCost
from shoal.rollout import FinishReason, QuestionId, Scored
from shoal.runs.tables import answer_columns

DIGITS = 4
"""Of figures made of sampled log-probabilities, which repeat to about eight digits: a run gives the same line."""


def round_metrics(node: Node, result: RoundResult) -> dict[str, Any]:
    """The line of `node` for a round. A mean over nothing is null, and so is a figure that the node cannot have: of
    training without a learner, of tokens if an endpoint keeps them. A learner that answers questions itself reports
    what that took under the same names, and it counts."""
    completions = [completion for scored in result.local for completion in scored.rollout.completions]
    lengths = [len(c.token_ids) for c in completions if c.token_ids is not None]
    generated = sum(lengths) if lengths or not completions else None
    prompted = flops = None
    if isinstance(node.policy, CountsCost):
        questions = [scored.question for scored in result.local]
        prompted, flops = node.policy.cost(questions, [scored.rollout.completions for scored in result.local])
    learns = node.learner is not None
    shares, update = result.update.gradient_shares, result.update.metrics
    answering = {"tokens/generated": generated, "tokens/prompted": prompted, "flops/generate": flops}
    return {
        "round": node.round,
        "node": node.name,
        "time": time.time(),
        "reward/local": _mean_reward(result.local),
        "reward/peers": _mean_reward(result.from_peers),
        "reward/trained_on": _mean_reward(result.batch) if learns else None,
        "rollouts/live_local": sum(scored.live for scored in result.local),
        "rollouts/shared": len(node.sent),
        "rollouts/sampled": len(result.from_peers) if learns else None,
        "rollouts/wanted": node.J if learns else None,
        "rollouts/pool": len(node.pool) if learns else None,
        "rollouts/live_pool": live_in_pool(node) if learns else None,
        "rollouts/refused": node.swarm.refused + node.scorer.refused,
        "completions/mean_length": _mean(lengths),
        "completions/truncated": _mean([c.finish_reason == FinishReason.length for c in completions]),
        "completions/missing": node.asked * node.G - len(completions),
        **{f"seconds/{name}": seconds for name, seconds in node.seconds.items()},
        "peers/shortened": _mean([one.shortened for one in result.from_peers if one.shortened is not None]),
        "gradient/peers": 1 - shares.get(node.name, 0.0) if shares else None,
        **update,
        **{key: round(value, DIGITS) for key, value in update.items() if key == "peers/nll_gap"},
        **{key: None if cost is None else cost + update.get(key, 0) for key, cost in answering.items()},
    }


def live_in_pool(node: Node) -> int:
    """How many rollouts of other nodes are there to learn from."""
    return sum(scored.may_teach for scored in node.pool.candidates())


def rollout_rows(
    result: RoundResult,
    right: Callable[[QuestionId], str | None],
    read: Callable[[QuestionId, str], str | None] = lambda question, text: None,
) -> list[dict[str, Any]]:
    """A row for each of a node's own completions, with its reward. `right`: gives a right answer, or None. `read`: says
    what was taken for the answer in a completion, or None."""
    known = {scored.question.id: right(scored.question.id) for scored in result.local}
    return [
        answer_columns(scored.rollout.node, scored.question, completion, reward, known[scored.question.id])
        | {
            "version": scored.question.id.version,
            "config": scored.question.id.config,
            "seed": scored.question.id.seed,
            "index": scored.question.id.index,
            "live": scored.live,
            "read": read(scored.question.id, completion.text),
        }
        for scored in result.local
        for completion, reward in zip(scored.rollout.completions, scored.rewards, strict=True)
    ]


def learned_rows(node: Node, result: RoundResult) -> list[dict[str, Any]]:
    """A row for each rollout that `node` learned from, its own and its peers': who learned from whom, and how much.

    `gradient_share`: the maker's share of the update's gradient, divided equally among its rollouts in the batch; null
    if the learner does not report shares, or had nothing to learn.
    `shortened`: the share of the characters of its right answers that was taken out (`peers.shorten`); null for own
    rollouts, and where nothing is.
    """
    shares = result.update.gradient_shares
    counts = Counter(scored.rollout.node for scored in result.batch)
    return [
        {
            "round": node.round,
            "node": node.name,
            "maker": scored.rollout.node,
            "made": scored.rollout.round,
            "slot": scored.rollout.slot,
            "task": scored.question.id.task,
            "config": scored.question.id.config,
            "seed": scored.question.id.seed,
            "index": scored.question.id.index,
            "live": scored.live,
            "mean_reward": scored.mean_reward,
            "peer": scored.from_peer,
            "gradient_share": shares.get(scored.rollout.node, 0.0) / counts[scored.rollout.node] if shares else None,
            "shortened": scored.shortened,
        }
        for scored in result.batch
    ]


def _mean_reward(group: Sequence[Scored]) -> float | None:
    return _mean([reward for scored in group for reward in scored.rewards])


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
