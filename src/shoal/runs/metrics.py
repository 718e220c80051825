"""What a run writes down of a round: for each node a line of `metrics.jsonl`, for each completion a row of rollouts.

`reward/local`, over a node's own unfiltered rollouts, and `eval/pass@1`, on held-out questions, are the figures that
count. `reward/trained_on` is a diagnostic: it rises by the choice of what to train on alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from shoal.node import Lesson, Node
from shoal.rollout import FinishReason, Scored

DIGITS = 4
"""Of figures that rest on log-probabilities as they were sampled: those repeat to about eight digits in another
process, and the same run is to give the same line."""


def round_metrics(node: Node, lesson: Lesson) -> dict[str, Any]:
    """The line of `node` for the round that gave it `lesson`. Means over nothing are null, and so is what a node has no
    part in: training where it has no learner, tokens where an endpoint keeps them to itself."""
    completions = [completion for scored in lesson.own for completion in scored.rollout.completions]
    lengths = [len(c.token_ids) for c in completions if c.token_ids is not None]
    learns = node.learner is not None
    metrics, shares = lesson.update.metrics, lesson.update.gradient_shares
    return {
        "round": node.round,
        "node": node.name,
        "time": time.time(),
        "reward/local": _mean_reward(lesson.own),
        "reward/external": _mean_reward(lesson.foreign),
        "reward/trained_on": _mean_reward(lesson.learned + lesson.foreign) if learns else None,
        "rollouts/live_local": sum(scored.live for scored in lesson.own),
        "rollouts/shared": len(node.sent),
        "rollouts/sampled": len(lesson.foreign) if learns else None,
        "rollouts/wanted": node.external if learns else None,
        "swarm/local": node.local if learns else None,
        "swarm/external": node.external if learns else None,
        "rollouts/pool": len(node.pool) if learns else None,
        "rollouts/live_pool": sum(scored.usable for scored in node.pool.candidates()) if learns else None,
        "rollouts/refused": node.swarm.refused,
        "completions/mean_length": _mean(lengths),
        "completions/truncated": _mean([c.finish_reason == FinishReason.length for c in completions]),
        "completions/missing": node.asked * node.num_generations - len(completions),
        "tokens/generated": sum(lengths) if lengths or not completions else None,
        **{f"seconds/{name}": seconds for name, seconds in node.seconds.items()},
        "gradient/external": 1 - shares.get(node.name, 0.0) if shares else None,
        **metrics,
        **{key: round(metrics[key], DIGITS) for key in ("external/nll_gap",) if key in metrics},
    }


def rollout_rows(lesson: Lesson) -> list[dict[str, Any]]:
    """The own completions of a round, with the rewards that their maker gave them."""
    return [
        {
            "node": scored.rollout.node,
            "task": scored.question.id.task,
            "version": scored.question.id.version,
            "config": scored.question.id.config,
            "seed": scored.question.id.seed,
            "index": scored.question.id.index,
            "question": scored.question.text,
            "completion": completion.text,
            "finish_reason": completion.finish_reason.value,
            "reward": reward,
            "live": scored.live,
        }
        for scored in lesson.own
        for completion, reward in zip(scored.rollout.completions, scored.rewards, strict=True)
    ]


def learned_rows(node: Node, lesson: Lesson) -> list[dict[str, Any]]:
    """The rollouts that `node` learned from in a round, its own and others': who learned from whom."""
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
            "foreign": scored.foreign,
        }
        for scored in lesson.learned + lesson.foreign
    ]


def _mean_reward(group: Sequence[Scored]) -> float | None:
    return _mean([reward for scored in group for reward in scored.rewards])


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
