"""Settings of `[learner]`: how a node learns from its rollouts and others'."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shoal.config.section import Section


class LearnerConfig(Section):
    """How a node learns from its rollouts and others'."""

    learning_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["auto"] = "auto"
    """Of the optimiser. auto: 2e-4 for guppy, 1e-6 for other models; ten times that for LoRA adapters."""
    optim: Literal["adamw", "adafactor", "adamw_8bit"] = "adamw"
    """AdamW, with 8 bytes of states a parameter; Adafactor, with next to none; AdamW with 2 (CUDA, `shoal[8bit]`)."""
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Of the optimiser: each step takes this share, times the learning rate, off the weights."""
    loss_type: Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo", "gspo"] = "dr_grpo"
    """How token losses are averaged: each sequence first (grpo), over a constant (dr_grpo), over the tokens of a pass
    (dapo) or of a step (bnpo). gspo: one ratio for each sequence. cispo: the ratio is a weight, cut from above."""
    advantage: Literal["group", "rloo", "gae"] = "group"
    """What a reward is compared with: its group's mean (group), the mean of the others in it (rloo), or what a critic
    expected (gae), which makes it PPO."""
    scale_rewards: Literal["none", "group", "batch"] = "none"
    """Divide advantages by the standard deviation of rewards in their group or in the batch, or not. With gae, batch
    gives all tokens' advantages mean 0 and variance 1."""
    multi_objective_aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = "sum_then_normalize"
    """How several `[[rewards]]` become one. normalize_then_sum: each is normalised in its group first, so that none
    counts more by its wider scale (GDPO)."""
    epsilon: float = Field(0.2, gt=0)
    """Lower clip range of the probability ratio. gspo's paper has 3e-4."""
    epsilon_high: float = Field(0.28, gt=0)
    """Upper clip range of the probability ratio. gspo's paper has 4e-4. For cispo the greatest ratio itself, as 5.0."""
    beta: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Weight of the KL divergence (k3) to the policy as it was at the start; 0 keeps no copy of it.
    With LoRA there is none either: the base is that policy."""
    num_iterations: int = Field(1, ge=1)
    """Passes over each round's rollouts."""
    num_minibatches: int = Field(1, ge=1)
    """Optimiser steps in each pass."""
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount for each token (gae)."""
    lam: float = Field(0.95, ge=0, le=1)
    """How far ahead the critic looks past its own estimates: 0 one token, 1 to the end (gae)."""
    vf_coef: float = Field(0.1, ge=0, allow_inf_nan=False)
    """Weight of the critic's loss (gae)."""
    cliprange_value: float = Field(0.2, gt=0)
    """How far an estimate may move from what it was before the round and still lower the critic's loss (gae)."""
    critic_learning_rate: float = Field(1e-2, ge=0, allow_inf_nan=False)
    """Of the critic's own weights (gae)."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Longest gradient (2-norm) that is applied; a longer one is scaled down."""
    mask_truncated_completions: bool = False
    """Leave completions that were cut at the longest length out of the loss."""
    tokens_per_micro_batch: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Upper bound of tokens in one forward and backward pass: it bounds memory, and changes no result. auto: 768, on a
    GPU 16384."""
    external_weight: Literal["none", "topr", "mask", "tis", "mis", "luffy"] = "topr"
    """What other nodes' completions count, at most 1, by how likely they are here and were where they were made. none:
    1, as in the paper. topr: 1 with a positive advantage, min(1, ratio) with a negative one. mask: 0 with a negative
    one that has become unlikely. tis, mis: each token's ratio, truncated at 1, or masked far from it. luffy:
    p / (p + 0.1) in place of log p."""
    external_gate: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Leave out others' completions of positive advantage that are less likely here than own ones by more than this, in
    nats for each token, and of their group's failures as much as of its successes; 0: take them all."""
    external_baseline_shift: float = Field(-0.1, ge=-1, le=1, allow_inf_nan=False)
    """Added to the baseline of others' rollouts (AsymRE): slightly negative, it trusts their successes over their
    failures; 0, as in the paper, leaves it."""
    external_limit: float = Field(1.0, ge=0, allow_inf_nan=False)
    """How many times the pull of one's own groups (the sum of |advantage| over their tokens, a running mean) another
    maker's groups may have on average in an update; what is above is scaled down. 0, as in the paper: no limit."""
    balance: Literal["none", "source"] = "none"
    """source: own and others' rollouts count as I to J, however many of either are live."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Keep only what each layer gets, and compute the rest again in the backward pass: less memory, a third more
    arithmetic. auto: where one micro-batch would otherwise keep more than 2 GiB or a quarter of the free memory."""

    fsdp: bool = False
    """Under torchrun: shard weights, gradients and the optimiser's states over the ranks (FSDP2), for models that one
    GPU cannot hold. Otherwise every rank holds all of them."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.loss_type == "cispo" and self.epsilon_high < 1:
            raise ValueError(
                f"epsilon_high = {self.epsilon_high} would cut every ratio of cispo, of which it is the greatest; "
                "5.0 is usual"
            )
        if self.advantage == "gae" and self.scale_rewards == "group":
            raise ValueError("scale_rewards = 'group' has no meaning with gae, which knows no groups; take 'batch'")
        return self
