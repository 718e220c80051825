"""What a weight of peers' completions is.

Shape suffixes: T trained tokens of a micro-batch, its completions one after another.
"""

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True)
class PeerTokens:
    """Trained tokens, and how likely their completions are here and were where they were made.

    A peer's word is not taken for the latter. It is estimated by the mean likelihood of the node's own completions,
    which is exact for a peer that is as sure of its answers as this node.
    """

    logps_T: torch.Tensor
    """Log-probability (nats) of each token here when the round began."""
    gap_T: torch.Tensor
    """The nats for each token by which the token's completion is less likely here than own completions are."""
    advantages_T: torch.Tensor
    sequences_T: torch.Tensor
    """The number of each token's completion: 0, 1, ... All tokens of a completion are here."""


class Weight(Protocol):
    """How much peers' completions count. See docs/extend/loss.md for one of your own."""

    def weights(self, tokens: PeerTokens) -> torch.Tensor:
        """The weight of each token (T,), in [0, 1], by which its loss is multiplied. It gets no gradient, and what is
        outside that range is cut."""
        ...
