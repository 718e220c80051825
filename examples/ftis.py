"""After F-TIS (arXiv 2605.22537): importance is truncated, and failures that this node would hardly make count nothing.

    shoal run --peer-weight "examples/ftis.py:FTIS(g=5)"

The weight of an answer is min(pi / mu, C), and 0 if its advantage is negative and its divergence is g or more. What is
left out: answers carry no log-probabilities here, since nobody's are believed. So pi / mu is an estimate, the same for
all tokens of an answer, where the paper has one for each. The divergence is the nats by which the answer is less likely
here, its estimate from one sample. Weights of peers end at 1 here, so C is 1, not 2. The paper takes g = 50 and finds
a smaller one better for a smaller model; 5 is the least that it tries.
"""

from __future__ import annotations

import torch

from shoal.learn.losses.base import sequence_sum
from shoal.learn.weights.base import PeerTokens, Weight


class FTIS(Weight):
    def __init__(self, g: float = 50.0, baseline_shift: float = 0.0, limit: float = 0.0) -> None:
        """`g`: nats for an answer."""
        super().__init__(baseline_shift, limit)
        self.g = g

    def weights(self, tokens: PeerTokens) -> torch.Tensor:
        ratio_T = torch.exp(-tokens.gap_T).clamp(max=1)
        far_T = sequence_sum(tokens.gap_T, tokens.sequences_T) >= self.g
        return ratio_T.masked_fill(far_T & (tokens.advantages_T < 0), 0)
