"""Optimisers, by Hugging Face's names, and what their states take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from transformers.optimization import Adafactor

from shoal.config.learner import LearnerConfig
from shoal.errors import UserError

STATE_BYTES: Final = {"adamw": 8.0, "adafactor": 0.1, "adamw_8bit": 2.1}
"""About what the states of one parameter take: two moments in float32; sums of rows and columns; two moments in a byte
each, with a scale for every 256."""


def make_optimizer(
    parameters: Iterable[torch.nn.Parameter], config: LearnerConfig, learning_rate: float, device: torch.device
) -> torch.optim.Optimizer:
    """`config.optim` for those of `parameters` that are trained.

    Adafactor (arXiv 1804.04235) is transformers', with the settings of its trainer: steps of the size that
    `learning_rate` says, as AdamW's are, where torch's own always scales them by the size of the weights.
    Raises `UserError` where the optimiser is not to be had.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    common: dict[str, Any] = {"lr": learning_rate, "weight_decay": config.weight_decay}
    if config.optim == "adafactor":
        return Adafactor(trained, scale_parameter=False, relative_step=False, **common)
    if config.optim == "adamw_8bit":
        if device.type != "cuda":
            raise UserError(f"--optim adamw_8bit needs a CUDA device, and this is {device}: take --optim adafactor")
        return _bitsandbytes().optim.AdamW8bit(trained, **common)  # type: ignore[no-any-return]
    return torch.optim.AdamW(trained, **common, fused=True)


def _bitsandbytes() -> Any:
    try:
        import bitsandbytes
    except ImportError as error:
        raise UserError(
            "--optim adamw_8bit needs bitsandbytes, which is not installed: pip install 'shoal[8bit]'"
        ) from error
    return bitsandbytes
