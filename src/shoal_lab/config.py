"""Settings of a run of the laboratory: those of any run, and `[experiment]`."""

from typing import Any, Literal, Self, cast

from pydantic import Field, model_validator

from shoal.config.load import make_config
from shoal.config.sections import Section
from shoal.config.settings import Config
from shoal.errors import nearest
from shoal_lab.attacks import PAYLOADS
from shoal_lab.recipes import BASE


class ExperimentConfig(Section):
    """Controls and attacks. An ordinary run has none."""

    source: Literal["swarm", "replay"] = "swarm"
    """Where peers' rollouts come from. replay: the node's own of earlier rounds."""
    same_questions: bool = False
    """All nodes get the same questions in a round."""
    shuffle: Literal["none", "external", "all"] = "none"
    """Shuffle the rewards within rollouts: those of peers (external), or all. Shuffled rewards teach nothing."""
    frozen: int = Field(0, ge=0)
    """How many of the nodes (the last ones) share rollouts and never learn."""
    blocked: list[str] = []
    """Nodes whose rollouts reach nobody."""
    adversaries: int = Field(0, ge=0)
    """How many of the nodes (the last ones) are hostile. The report's figures leave them out."""
    attack: str = "planted"
    """What adversaries send. planted: right answers with a text planted in them; identities: the same under four
    names; slots: with a word of the question; paraphrases: one of fifty; cover:
    the text in three of four wrong answers, too; seldom: in one group of six. reasoning: right answers after wrong
    reasoning. word, length: one made-up word before them, or four; language: a foreign one; short: the answer alone;
    numbers: numbers; stutter: familiar words again and again; spaces: lines left empty. failures: familiar words before
    wrong answers. biased: the first number of the question, where that is right. plagiarist: others' live rollouts
    under its own name."""
    honest_rounds: int = Field(0, ge=0)
    """Rounds in which adversaries send no payload, to be trusted first."""
    payload_share: float = Field(1.0, gt=0, le=1)
    """The share of an adversary's right answers (of wrong ones, where right ones have no room) with the payload."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.attack not in PAYLOADS:
            raise ValueError(f"there is no attack {self.attack!r}; {nearest(self.attack, PAYLOADS)}")
        if self.source == "replay" and self.shuffle == "external":
            raise ValueError("replayed rollouts are the node's own: take shuffle = 'all'")
        return self


class LabConfig(Config):
    """A run of a study."""

    experiment: ExperimentConfig = ExperimentConfig()

    @property
    def own_policies(self) -> list[str]:
        """base:NAME is a model that the study makes."""
        return [name for name in super().own_policies if not name.startswith(BASE)]

    def to_toml(self, without: set[str] | None = None) -> str:
        """As `Config.to_toml`. A run without controls has no `[experiment]`, so that `shoal run` can repeat it."""
        plain = self.experiment == ExperimentConfig()
        return super().to_toml((without or set()) | ({"experiment"} if plain else set()))


def make_lab_config(settings: dict[str, Any], source: str) -> LabConfig:
    """A `LabConfig` of nested settings, as `make_config`. Whoever runs it must ask about the code that it names."""
    return cast(LabConfig, make_config(settings, source, allow_code=True, kind=LabConfig))
