"""The losses by name (`learner.loss_type`). Each has a file of its own; docs/extend/loss.md shows how to write one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from shoal.config.own_code import make_named
from shoal.learn.losses.base import Loss
from shoal.learn.losses.cispo import CISPO
from shoal.learn.losses.dapo import DAPO
from shoal.learn.losses.dr_grpo import DrGRPO
from shoal.learn.losses.grpo import GRPO
from shoal.learn.losses.gspo import GSPO

LOSSES: Final[Mapping[str, Callable[..., Loss]]] = {
    "grpo": GRPO,
    "dr_grpo": DrGRPO,
    "dapo": DAPO,
    "cispo": CISPO,
    "gspo": GSPO,
}


def make_loss(setting: str) -> Loss:
    """The loss that `learner.loss_type` names. Raises `UserError`.

    make_loss("dapo")
    make_loss("gspo(epsilon=1e-3, epsilon_high=2e-3)")
    make_loss("my_losses:Mine")
    """
    return make_named(setting, LOSSES, Loss, "loss")  # type: ignore[type-abstract]
