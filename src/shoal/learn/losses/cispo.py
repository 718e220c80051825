"""CISPO (MiniMax-M1, arXiv 2506.13585, eqs. 4 and 5)."""

import torch

from shoal.learn.losses.base import Average, TokenLosses, Tokens


class CISPO:
    """-min(ratio, epsilon_high) A logps for each token, with no gradient through the ratio: what has gone far keeps a
    gradient, of bounded weight. Averaged over all tokens.

    As in TRL, and unlike elsewhere, `epsilon_high` is the greatest weight itself (the paper's 1 + epsilon_high), and
    there is no least one. 5.0 is that of ScaleRL (arXiv 2510.13786).
    """

    average = Average.token

    def __init__(self, epsilon_high: float = 5.0) -> None:
        if epsilon_high < 1:
            raise ValueError(f"epsilon_high = {epsilon_high} would cut every ratio: it is the greatest ratio itself")
        self.epsilon_high = epsilon_high

    def token_losses(self, tokens: Tokens) -> TokenLosses:
        ratio_T = torch.exp(tokens.logps_T - tokens.old_logps_T).detach()
        return TokenLosses(
            -ratio_T.clamp(max=self.epsilon_high) * tokens.advantages_T * tokens.logps_T,
            high_T=(ratio_T > self.epsilon_high) & (tokens.advantages_T > 0),
        )
