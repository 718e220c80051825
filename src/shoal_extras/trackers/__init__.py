"""Trackers of `--report-to`: trackio, wandb and tensorboard. `Tracker` is what one of your own begins with."""

from shoal_extras.trackers.tracker import Report, Start, Tracker

__all__ = ["Report", "Start", "Tracker"]
