"""No weight, as in the paper of swarm sampling (arXiv 2509.08721)."""

import torch

from shoal.learn.weights.base import PeerTokens, Weight


class NoWeight(Weight):
    """A peer's completion counts as an own one."""

    def weights(self, tokens: PeerTokens) -> torch.Tensor:
        return torch.ones_like(tokens.logps_T)
