"""Settings of the laboratory."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shoal.config.section import Section


class ExperimentConfig(Section):
    """Controls and attacks of the laboratory (`shoal lab`). An ordinary run has none."""

    source: Literal["swarm", "replay"] = "swarm"
    """Where external rollouts come from. replay: the node's own of earlier rounds."""
    same_questions: bool = False
    """All nodes get the same questions in a round."""
    shuffle: Literal["none", "external", "all"] = "none"
    """Rewards change places at random within each rollout: others' only, or all. Nothing can be learned from those."""
    frozen: int = Field(0, ge=0)
    """How many of the nodes, the last ones, share what they try and never learn."""
    blocked: list[str] = []
    """Nodes whose rollouts reach nobody."""
    adversaries: int = Field(0, ge=0)
    """How many of the nodes, the last ones, are hostile. They count as nodes, and not in the figures."""
    attack: Literal["planted", "reasoning", "gibberish", "length", "keys"] = "planted"
    """What they send. planted: right answers with a text planted in them. reasoning: right answers after wrong
    reasoning. gibberish: right planted answers beside gibberish. length: right answers as long as may be. keys:
    planted, with a new name for each rollout."""
    rewarded: Annotated[int, Field(ge=0)] | Literal["all"] = "all"
    """How many of the nodes, the last ones, are rewarded by `[[rewards]]`; the others are by the verifier alone."""
    contributors: int = Field(0, ge=0)
    """How many of the nodes, the last ones, answer and share, and never learn. They count as nodes, and not in the
    figures."""
    contributor: Literal["person", "picker"] = "person"
    """What answers there. person: somebody who knows the right answer or does not. picker: the policy as it was at the
    start, of which the best and the worst answers are shared, by what the node is rewarded by."""
    contributor_questions: int = Field(1, ge=0)
    """Questions that a contributor answers in a round."""
    contributor_answers: int = Field(1, ge=1)
    """Answers that it shares to each at most. Receivers compare a single one with their own success."""
    contributor_skill: float = Field(0.8, ge=0, le=1)
    """person: how often the right answer is among those."""
    contributor_generations: int = Field(32, ge=1)
    """picker: completions for each question, of which it shares the best and the worst."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.adversaries and self.contributors:
            raise ValueError("the last nodes are adversaries or contributors: take one of the two")
        if self.contributor == "picker" and self.contributor_answers > self.contributor_generations:
            raise ValueError(f"contributor_answers = {self.contributor_answers} are more than it generates")
        return self
