"""Trackers of `--report-to`: trackio, wandb and tensorboard. `Tracker` is what one of your own begins with."""

from shoal_extras.trackers.report import Report, Start
from shoal_extras.trackers.tracker import Tracker

__all__ = ["Report", "Start", "Tracker"]
