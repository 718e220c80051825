"""Settings of `[learner]`: how a node updates its model."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shoal.config.section import Section


class LearnerConfig(Section):
    """How a node updates its model. How much others' rollouts count is `[external]`."""

    learning_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["auto"] = "auto"
    """Learning rate of the optimizer. auto: 4e-4 for guppy and folders with less than 20 MB of weights, 2e-4 for
    guppy-games and guppy-eye, 1e-6 for Gemma, 2e-5 for other models; ten times that for LoRA adapters."""
    optim: Literal["auto", "adamw", "adamw_bf16", "adafactor", "adamw_8bit"] = "auto"
    """The optimizer. adamw keeps 8 bytes of state for each parameter, adamw_bf16 6 (its first moment rests in bfloat16
    between steps), adamw_8bit 2 (CUDA, `shoal[8bit]`), adafactor almost none. auto: adamw for models of guppy's size,
    for LoRA adapters and with fsdp, adamw_bf16 elsewhere."""
    loss_type: Literal["grpo", "dr_grpo", "dapo", "cispo", "gspo"] = "dr_grpo"
    """The loss: grpo, dr_grpo, dapo, cispo or gspo. Token losses are averaged over each sequence first (grpo),
    over a constant (dr_grpo) or over all tokens (dapo). gspo: one ratio for each sequence. cispo: the ratio is a
    weight with an upper bound."""
    scale_rewards: Literal["none", "group", "batch"] = "none"
    """Divide advantages by the standard deviation of the rewards of their group, of the whole batch, or not at all."""
    multi_objective_aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = "sum_then_normalize"
    """How several `[[rewards]]` become one. normalize_then_sum: each is normalised within its group first, so that none
    counts more because its scale is wider (GDPO)."""
    epsilon: float = Field(0.2, gt=0)
    """Lower clip range of the probability ratio. The paper of gspo uses 3e-4."""
    epsilon_high: float = Field(0.28, gt=0)
    """Upper clip range of the probability ratio. The paper of gspo uses 4e-4. For cispo it is the greatest ratio
    itself, such as 5.0."""
    beta: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Weight of the KL divergence (k3) to the policy as it was at the start. 0 keeps no copy of that policy. LoRA never
    needs a copy: its base is that policy."""
    num_iterations: int = Field(1, ge=1)
    """Optimizer steps on each round's rollouts."""
    mask_truncated_completions: bool = False
    """Leave completions that were cut at the longest length out of the loss."""
    tokens_per_micro_batch: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Most tokens in one forward and backward pass; behind a prompt that takes more than half of them, half as many. A
    longer pass keeps less and computes it again (gradient checkpointing). It bounds memory and changes no result. auto:
    16384 on a GPU, elsewhere 1024 for models that see pictures and 512 for others."""
    fsdp: bool = False
    """Under torchrun: shard weights, gradients and optimiser states over the ranks (FSDP2), for models that one GPU
    cannot hold. Otherwise every rank holds all of them."""

    factory: str = ""
    """A learner of your own, in place of shoal's. It is called with the policy and the Config."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.loss_type == "cispo" and self.epsilon_high < 1:
            raise ValueError(
                f"epsilon_high = {self.epsilon_high} would cut every ratio: for cispo it is the greatest ratio itself; "
                "5.0 is usual"
            )
        return self
