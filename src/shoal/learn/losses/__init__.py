"""The losses by name (`learner.loss_type`); docs/extend/loss.md shows how to write one."""

from typing import Final

from shoal.config.own_code import make_named
from shoal.learn.losses.base import Loss

LOSSES: Final = {
    "grpo": "shoal.learn.losses.clipped:GRPO",
    "dr_grpo": "shoal.learn.losses.clipped:DrGRPO",
    "dapo": "shoal.learn.losses.clipped:DAPO",
    "cispo": "shoal.learn.losses.cispo:CISPO",
    "gspo": "shoal.learn.losses.clipped:GSPO",
}
"""Installed packages add theirs by the entry points "shoal.losses"."""


def make_loss(setting: str) -> Loss:
    """The loss that `learner.loss_type` names. Raises `UserError`.

    make_loss("dapo")
    make_loss("gspo(epsilon=1e-3, epsilon_high=2e-3)")
    make_loss("my_losses:Mine")
    """
    return make_named(setting, "loss", Loss, LOSSES, "shoal.losses")  # type: ignore[type-abstract]
