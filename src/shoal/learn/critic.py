"""The critic of PPO: what reward a state of the policy promises, and the advantages that follow from it.

A state is a prompt with the tokens of a completion so far, and the critic reads it off the policy's own last hidden
state, the one that predicts the next token. So it costs no model of its own and no second forward pass. As in any
PPO with a shared trunk its loss reaches the policy's weights too, by `vf_coef`.

Shape suffixes: T trained tokens, N completions, L tokens of the longest one, D hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from shoal.config.learner import LearnerConfig
from shoal.learn.batch import Trained


class Critic(nn.Module):
    """values_T = w . h / |h| + b, of hidden states (T, D).

    It begins at 0 everywhere, so that the first round is REINFORCE on plain rewards and no noise reaches the policy.
    Hidden states are scaled to length 1, so that one learning rate does for every architecture; it is the critic's own
    since a policy's 1e-6 would take a new head nowhere.
    """

    def __init__(self, hidden_size: int, learning_rate: float, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.head = nn.Linear(hidden_size, 1, device=device, dtype=torch.promote_types(dtype, torch.float32))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.optimizer = torch.optim.Adam(self.parameters(), learning_rate)

    def forward(self, hidden_TD: torch.Tensor) -> torch.Tensor:
        unit_TD = nn.functional.normalize(hidden_TD.to(self.head.weight.dtype), dim=-1)
        return self.head(unit_TD)[:, 0]  # type: ignore[no-any-return]

    def state(self) -> dict[str, Any]:
        """All that `restore` needs to go on."""
        return {"weights": self.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        self.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])


@dataclass(frozen=True)
class Judgement:
    """What a critic said of all tokens before the first step of a round, at their slots."""

    values_T: torch.Tensor
    advantages_T: torch.Tensor
    returns_T: torch.Tensor

    def metrics(self) -> dict[str, float]:
        explained = explained_variance(self.values_T, self.returns_T)
        return {"explained_variance": explained} if math.isfinite(explained) else {}


def judge(values_T: torch.Tensor, sequences: Sequence[Trained], config: LearnerConfig) -> Judgement:
    """The judgement that follows from `values_T`, with whitened advantages where `scale_rewards` is "batch"."""
    advantages_T, returns_T = generalised_advantages(values_T, sequences, config.gamma, config.lam)
    if config.scale_rewards == "batch":
        advantages_T = whiten(advantages_T)
    return Judgement(values_T, advantages_T, returns_T)


def generalised_advantages(
    values_T: torch.Tensor, sequences: Sequence[Trained], gamma: float, lam: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(advantages_T, returns_T) of all tokens: A_t = sum over k of (gamma lam)^k delta_{t+k}, delta_t = r_t + gamma
    V_{t+1} - V_t, and A_t + V_t (GAE, arXiv 1506.02438, eq. 16).

    A completion's reward is that of its last token, after which nothing has a value. `values_T`: V of the state before
    each token, at the slots of `sequences`, which fill them all.
    """
    device = values_T.device
    starts_N, lengths_N = (
        torch.tensor(each, device=device)
        for each in ([s.slot for s in sequences], [len(s.token_ids) for s in sequences])
    )
    rewards_N = torch.tensor([s.reward for s in sequences], dtype=values_T.dtype, device=device)
    steps_L = torch.arange(int(lengths_N.max()), device=device)
    inside_NL = steps_L < lengths_N[:, None]
    slots_NL = starts_N[:, None] + torch.minimum(steps_L, lengths_N[:, None] - 1)
    values_NL = values_T[slots_NL].masked_fill(~inside_NL, 0)
    next_NL = nn.functional.pad(values_NL[:, 1:], (0, 1))
    rewards_NL = torch.where(steps_L == lengths_N[:, None] - 1, rewards_N[:, None], 0)
    deltas_NL = rewards_NL + gamma * next_NL - values_NL
    later_N = torch.zeros_like(rewards_N)
    columns = []
    for deltas_N in reversed(deltas_NL.unbind(1)):  # behind the end of a completion they are 0
        later_N = deltas_N + gamma * lam * later_N
        columns.append(later_N)
    advantages_T = torch.zeros_like(values_T)
    advantages_T[slots_NL[inside_NL]] = torch.stack(columns[::-1], 1)[inside_NL]
    return advantages_T, advantages_T + values_T


def whiten(values_T: torch.Tensor) -> torch.Tensor:
    """With mean 0 and variance 1 (one degree of freedom taken off, 1e-8 added), as TRL's `masked_whiten`."""
    if len(values_T) < 2:
        return torch.zeros_like(values_T)
    return (values_T - values_T.mean()) * torch.rsqrt(values_T.var() + 1e-8)


def explained_variance(values_T: torch.Tensor, returns_T: torch.Tensor) -> float:
    """1 - Var(returns - values) / Var(returns): 1 is a perfect critic, 0 one that knows nothing. NaN if all returns are
    the same."""
    return float(1 - (returns_T - values_T).var(correction=0) / returns_T.var(correction=0))
