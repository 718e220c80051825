"""Tasks with another limit of time."""

from __future__ import annotations

from shoal.config.tasks import TasksConfig


def within(seconds: float, config: TasksConfig) -> TasksConfig:
    """`config`, with so many seconds for scoring a completion."""
    sources = [spec.model_copy(update={"score_timeout": seconds}) for spec in config.sources]
    return config.model_copy(update={"sources": sources})
