"""Settings of `[[rewards]]`: what answers are rewarded by."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from shoal.config.section import Section

REWARD_NEEDS: Final = {"model": "model", "generative": "model", "function": "function", "rankings": "file"}
"""What each kind cannot do without."""


class RewardSpec(Section):
    """Something that rewards answers. Several are weighed against each other."""

    kind: Literal["verifier", "model", "generative", "function", "rankings"] = "verifier"
    """verifier: the tasks' own. model: a reward model (sequence classification). generative: a language model's "Yes".
    function: a Python function as TRL takes it. rankings: what people ranked."""
    name: str = ""
    """What figures call it; empty: its kind."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """What it counts, relative to the others."""
    gate: bool = False
    """Multiply the others' sum by it, instead of adding it: with the verifier as a gate a wrong answer has no reward,
    whatever a judge says. Its weight is then without effect."""
    model: str = ""
    """model, generative: a Hugging Face name or a model folder; generative also guppy or a GGUF file. It never
    learns."""
    label: int = Field(0, ge=0)
    """model: which of its outputs is the reward, where it has several."""
    scale: Literal["sigmoid", "linear"] = "sigmoid"
    """model: how an output becomes a reward. sigmoid: as a probability (softmax where there are several). linear:
    from `low` to `high`."""
    low: float = Field(0.0, allow_inf_nan=False)
    """model (linear), function: the value that becomes 0; so does what is lower."""
    high: float = Field(1.0, allow_inf_nan=False)
    """model (linear), function: the value that becomes 1; so does what is higher."""
    votes: int = Field(4, ge=1, le=64)
    """generative: judging prompts, each worded and ordered in another way. Their mean counts, or the least of them if
    calibrated."""
    calibrated: bool = True
    """generative: count only what an answer has, in every vote, above an empty one and above the same text as the
    answer to another question: a judge who says Yes to anything, or to whatever tells him to, then says nothing."""
    max_characters: int = Field(4000, ge=1)
    """model, generative: of a question, and of an answer; the rest is not read. One token for each at most."""
    function: str = ""
    """function: `module:attribute`."""
    conversational: bool = True
    """function: give prompts and completions as chats; otherwise as plain texts."""
    columns: dict[str, str] = {}
    """function: names of its arguments and what they are of "task", "question" and the task's own ("answer",
    "metadata"), where these have another name: { ground_truth = "answer" }."""
    timeout: float = Field(2.0, gt=0, allow_inf_nan=False)
    """function: seconds for a completion alone; a call of n has 1 + n / 8 times that, then each is tried alone."""
    guarded: bool = True
    """function: refuse it files, sockets, processes and code from text, and bound its memory, as scorers are. Without,
    it still has a process of its own."""
    file: str = ""
    """rankings: an SQLite file, made if it is not there."""
    method: Literal["mean_rank", "bradley_terry"] = "mean_rank"
    """rankings: how several become one reward."""

    @property
    def label_name(self) -> str:
        """What figures call it."""
        return self.name or self.kind

    @model_validator(mode="after")
    def _agree(self) -> Self:
        needed = REWARD_NEEDS.get(self.kind)
        if needed and not getattr(self, needed):
            raise ValueError(f"a reward of kind '{self.kind}' needs '{needed}'")
        if self.function and ":" not in self.function:
            raise ValueError(f"function = '{self.function}': write module:attribute")
        if not self.low < self.high:
            raise ValueError(f"low = {self.low} must be less than high = {self.high}")
        return self
