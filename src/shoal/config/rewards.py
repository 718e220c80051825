"""Settings of `[[rewards]]`: what answers are rewarded by. Each kind has its own fields.

[[rewards]]
kind = "model"
model = "Skywork/Skywork-Reward-V2-Qwen3-0.6B"
"""

from collections.abc import Iterable
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, model_validator

from shoal.config.sections import Section

Number = Annotated[float, Field(allow_inf_nan=False)]


class RewardSection(Section):
    """What every kind of reward has."""

    kind: str
    name: str = ""
    """What figures call it; empty: its kind."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """How much it counts, relative to the others."""
    gate: bool = False
    """Multiply the sum of the others by it instead of adding it. With the verifier as a gate, a wrong answer has no
    reward, whatever other rewards say. A gate's weight has no effect."""

    @property
    def display_name(self) -> str:
        """What figures call it."""
        return self.name or self.kind


class ScaledSection(RewardSection):
    """A reward that is mapped from a range to [0, 1]."""

    low: Number = 0.0
    """The value that becomes 0; so do lower ones."""
    high: Number = 1.0
    """The value that becomes 1; so do higher ones."""

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low = {self.low} must be less than high = {self.high}")
        return self


class VerifierRewardSpec(RewardSection):
    """The tasks' own verifier."""

    kind: Literal["verifier"] = "verifier"


class ModelRewardSpec(ScaledSection):
    """A reward model: a transformer for sequence classification."""

    kind: Literal["model"] = "model"
    model: str = Field(min_length=1)
    """A Hugging Face name or a model folder. The model never learns."""
    label: int = Field(0, ge=0)
    """Which of the model's outputs is the reward, if there are several."""
    scale: Literal["sigmoid", "linear"] = "sigmoid"
    """How an output becomes a reward. sigmoid: as a probability (softmax if there are several outputs). linear: from
    `low` to `high`."""
    max_characters: int = Field(4000, ge=1)
    """Characters of a question, and of an answer, that the model reads; at most one token for each."""


class GenerativeRewardSpec(RewardSection):
    """A language model that is asked whether an answer is right."""

    kind: Literal["generative"] = "generative"
    model: str = Field(min_length=1)
    """A Hugging Face name, a model folder, a GGUF file or guppy. The model never learns."""
    votes: int = Field(4, ge=1, le=64)
    """Prompts for each answer, with different wording and order. The reward is the mean of their votes, or the lowest
    one if calibrated."""
    calibrated: bool = True
    """Count only how much more an answer gets, in every vote, than an empty answer and than the same text as the answer
    to another question. A model that says Yes to everything, or to anything that asks for it, then rewards nothing."""
    max_characters: int = Field(4000, ge=1)
    """Characters of a question, and of an answer, that the model reads; at most one token for each."""


class FunctionRewardSpec(ScaledSection):
    """A Python function as TRL's GRPOTrainer takes it."""

    kind: Literal["function"] = "function"
    function: str = Field(pattern=r"^[^:]+:[^:]+$")
    """`module:attribute`."""
    conversational: bool | Literal["auto"] = "auto"
    """Pass prompts and completions as chats, or as plain texts. auto: as TRL, as texts where the prompts of a data set
    are texts, otherwise as chats."""
    columns: dict[str, str] = {}
    """Arguments of the function and where their values come from: "task", "question" or a column of the task ("answer",
    "metadata"). For example { ground_truth = "answer" }."""
    timeout: float = Field(2.0, gt=0, allow_inf_nan=False)
    """Seconds for one completion. A call with n completions has 1 + n / 8 times as long; if it fails, each completion
    is tried alone."""
    guarded: bool = True
    """Deny the function files, sockets, processes and code made of text, and limit its memory. Without the guard it
    still runs in its own process."""


class RankingsRewardSpec(RewardSection):
    """Rankings that people gave."""

    kind: Literal["rankings"] = "rankings"
    file: str = Field(min_length=1)
    """The SQLite file in which `shoal human` keeps them (SWARM-rankings.sqlite in its --home)."""


RewardSpec = Annotated[
    VerifierRewardSpec | ModelRewardSpec | GenerativeRewardSpec | FunctionRewardSpec | RankingsRewardSpec,
    Field(discriminator="kind"),
]
"""An entry of `[[rewards]]`: `kind` says which."""
REWARD_KINDS: Final[dict[str, type[RewardSection]]] = {
    section.model_fields["kind"].default: section for section in get_args(get_args(RewardSpec)[0])
}


def specs_with_models(specs: Iterable[RewardSpec]) -> list[ModelRewardSpec | GenerativeRewardSpec]:
    """Those of `specs` that name a model."""
    return [spec for spec in specs if isinstance(spec, ModelRewardSpec | GenerativeRewardSpec)]
