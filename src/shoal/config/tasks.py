"""Settings of `[tasks]`: where questions come from and how answers are scored."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from shoal.config.section import Section

EASY: Final = {"pond": 16, "tide": 16, "tagged": 32}
"""Suites for models of a million parameters: the longest completions, in tokens."""


class TaskSpec(Section):
    """A source of questions."""

    name: str
    """A task of reasoning-gym, or `module:attribute` of one's own (see docs/guides/tasks.md)."""
    parameters: dict[str, Any] = {}
    """The task's own parameters; what is not given has the task's default."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """How often the task is drawn, relative to the others."""
    answer: Literal["whole", "tag"] = "whole"
    """What of a completion is the answer: all of it, or what stands in its last <answer> </answer>."""
    system_prompt: str = ""
    """What is said before the question."""


class TasksConfig(Section):
    """Where questions come from and how answers are scored."""

    suite: str = "pond"
    """Tasks: pond, tide, tagged (easy ones for guppy) or paper (harder ones). pond: nine tasks that guppy can learn.
    tide: other easy tasks. tagged: those of pond, answered between tags. paper: the nine tasks of the paper."""
    only: list[str] = []
    """Only this task of the suite. It can be given several times."""
    tasks: list[TaskSpec] = []
    """Tasks of one's own in place of the suite (`[[tasks.tasks]]` in a file)."""
    partial_credit: bool = False
    """Give a task's own partial scores, as the paper does; otherwise 1 for a full answer and 0 for all else."""
    held_out: ClassVar[float] = 0.2
    """The share of all questions, by a hash of their text, that is never trained on: the same on all nodes."""
    score_timeout: float = Field(2.0, gt=0, allow_inf_nan=False)
    """Seconds of processor time that scoring one completion may take, before it counts as 0."""

    @property
    def code(self) -> list[str]:
        """The code of one's own that these tasks name."""
        return [spec.name for spec in self.tasks if ":" in spec.name]
