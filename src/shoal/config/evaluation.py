"""Settings of `[evaluation]`: held-out questions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shoal.config.section import Section


class EvaluationConfig(Section):
    """Held-out questions: the same for every node, never trained on."""

    every: int = Field(10, ge=0)
    """Rounds between evaluations; 0: only at the start and the end."""
    questions: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Questions of each task. auto: 16 for models of guppy's size, in `pond`, `tagged`, `reef` and `pictures`;
    elsewhere about 64 in all, and at least 4 of each task."""
    samples: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Completions for each question, at the temperature of decoding. auto: 4 for models of guppy's size, in the same
    suites and `games`; 1 elsewhere."""
    judges: list[str] = []
    """Judges whose questions the node answers after each round: http://HOST:PORT#KEY (`shoal judge`; only for
    `shoal join`)."""
