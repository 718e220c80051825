"""Settings of `[external]`: how much other nodes' rollouts count in an update (docs/concepts/update.md)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoal.config.section import Section


class ExternalConfig(Section):
    """How much other nodes' rollouts count in an update."""

    weight: Literal["none", "topr"] = "topr"
    """Weight of another node's completion, at most 1. none: 1, as in the paper. topr: 1 with a positive advantage;
    min(1, likelihood ratio) with a negative one (TOPR, arXiv 2503.14286)."""
    gate: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Leave out others' completions of positive advantage that are less likely here than own ones by more than this, in
    nats for each token, and the same share of their group's failures. 0: leave out nothing."""
    baseline_shift: float = Field(-0.1, ge=-1, le=1, allow_inf_nan=False)
    """Added to the baseline of others' rollouts (AsymRE, arXiv 2506.20520). Slightly negative: their successes count
    more than their failures. 0: no shift, as in the paper."""
    limit: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Greatest mean gradient size of another maker's groups in an update, as a multiple of the running mean of own
    groups. Above it, one factor scales down all groups of that maker. The size is the sum of |advantage| over tokens
    (over completions for grpo and gspo). 0: no limit, as in the paper."""
