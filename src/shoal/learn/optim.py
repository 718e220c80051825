"""Optimisers, with Hugging Face's names, and the memory of their states."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch

from shoal.parallel.ranks import Ranks

STATE_BYTES: Final = {"adamw": 8.0, "adafactor": 0.1}
"""Bytes of state for one parameter, about: two moments in float32; sums of rows and columns."""


def make_optimizer(parameters: Iterable[torch.nn.Parameter], optim: str, learning_rate: float) -> torch.optim.Optimizer:
    """The optimiser `optim` for those of `parameters` that are trained, without weight decay.

    Adafactor (arXiv 1804.04235) is transformers', with the settings of its Trainer: its steps are as large as
    `learning_rate` says, like AdamW's; torch's own always scales them by the size of the weights.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    common: dict[str, Any] = {"lr": learning_rate, "weight_decay": 0.0}
    if optim == "adafactor":
        from transformers.optimization import Adafactor  # peft, only now

        return Adafactor(trained, scale_parameter=False, relative_step=False, **common)
    return torch.optim.AdamW(trained, **common, fused=True)


def sum_gradients(parameters: Sequence[torch.nn.Parameter], ranks: Ranks, device: torch.device) -> None:
    """Adds up gradients over ranks, some of which may have none. A parameter without any keeps none."""
    if ranks.size == 1 or not parameters:
        return
    found = torch.tensor([float(p.grad is not None) for p in parameters], device=device)
    ranks.add([found])
    touched = [p for p, times in zip(parameters, found.tolist(), strict=True) if times]
    for parameter in touched:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    ranks.add([parameter.grad for parameter in touched if parameter.grad is not None])
