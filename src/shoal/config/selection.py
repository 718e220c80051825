"""Settings of which rollouts a node learns from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoal.config.section import Section


class SamplingConfig(Section):
    """Which of the pool's rollouts a node learns from. As they stand: of the live ones as in the paper, but by turns of
    their makers, and but for `fill`."""

    learnability: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Prefer tasks that this node solves half of the time: weight [p (1 - p)]^learnability; 0: no preference."""
    max_per_peer: int = Field(0, ge=0)
    """Rollouts of one node in an update at most; 0: any number."""
    max_per_question: int = Field(0, ge=0)
    """Rollouts of one question in an update at most; 0: any number."""
    drop_duplicates: bool = False
    """Leave out rollouts of others with the same answers to the same question as one learned from of late."""
    keep_solved: bool = False
    """Take also rollouts that are right throughout, for tasks that this node solves less than a fifth of the time; its
    own success rate is then their baseline."""
    fill: bool = True
    """Others' live rollouts, where the pool has more than J, take the places of own ones from which nothing is to be
    learned: updates then have I + J live rollouts at the cost of I."""
    newcomer_share: float = Field(1.0, gt=0, le=1)
    """The share of J, but at least one rollout, that nodes get together of whom fewer than 16 rollouts have come."""
    trust: bool = False
    """Put a node before others in as many updates as the gate let its successes through of late (needs an
    `external.gate`), and last in the rest; newcomers, where they have a share of their own, as newcomers together."""
    adapt: Literal["none", "ess", "progress", "both"] = "none"
    """Move J, and I the other way, within I + J: fewer external ones where their effective sample size is below a half
    (ess: needs an `external.weight` or gate), back where own reward rises less than before the move (progress)."""
