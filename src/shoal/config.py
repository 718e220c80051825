"""Every setting of a run: typed, with its meaning where it is declared and its default beside it.

A run's `config.toml` is this, complete. On the command line each setting is `--section.name VALUE`, or `--name VALUE`
for short. Where TRL has a name for a thing, it is TRL's.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from shoal.errors import UserError

CONFIG_VERSION: Final = 1
GUPPY = "guppy"
KINDS = {"int", "float", "bool"}
"""What pydantic adds to the name of a setting of several types."""


class Section(BaseModel):
    """A group of settings: unknown names are refused, meanings are the docstrings below the fields."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, validate_assignment=True)


class TaskSpec(Section):
    """A source of questions."""

    name: str
    """A task of reasoning-gym, or `module:attribute` of one's own (see docs/tasks.md)."""
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
    """A named suite: `pond` (easy, what guppy can learn) or `paper` (the nine tasks of the paper)."""
    tasks: list[TaskSpec] = []
    """Tasks of one's own in place of the suite (`[[tasks.tasks]]` in a file)."""
    partial_credit: bool = False
    """Give a task's own partial scores, as the paper does; otherwise 1 for a full answer and 0 for all else."""
    held_out: float = Field(0.2, gt=0, lt=1)
    """The share of all questions, by a hash of their text, that is kept for evaluation and never trained on."""
    score_timeout: float = Field(2.0, gt=0, allow_inf_nan=False)
    """Seconds that scoring one completion may take, before it counts as 0."""


class PolicyConfig(Section):
    """What answers, and how it decodes."""

    model: list[str] = Field([GUPPY], min_length=1)
    """A Hugging Face name, a model folder or a GGUF file; give several and the nodes take them in turn."""
    num_generations: int = Field(8, ge=1)
    """G: completions for each question."""
    max_completion_length: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """The longest completion, in tokens. auto: 16 in `pond`, 256 elsewhere."""
    temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Softmax temperature of sampling."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the smallest set of tokens that has this much probability."""
    device: str = "auto"
    """auto, cpu, mps, cuda, cuda:1, ..."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; weights stay float32. auto: bfloat16 on a GPU that has it in hardware, float32 elsewhere."""


class LearnerConfig(Section):
    """How a node learns from its rollouts and others'."""

    learning_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["auto"] = "auto"
    """Of AdamW. auto: 2e-4 for guppy, 1e-6 for other models."""
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Of AdamW."""
    loss_type: Literal["grpo", "dr_grpo", "dapo"] = "dr_grpo"
    """How token losses are averaged: each sequence first (grpo), over a constant (dr_grpo), over all tokens (dapo)."""
    scale_rewards: Literal["none", "group"] = "none"
    """Divide advantages by the standard deviation of their group, or not."""
    epsilon: float = Field(0.2, gt=0)
    """Lower clip range of the probability ratio."""
    epsilon_high: float = Field(0.28, gt=0)
    """Upper clip range of the probability ratio."""
    beta: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Weight of the KL divergence (k3) to the policy as it was at the start; 0 keeps no copy of it."""
    num_iterations: int = Field(1, ge=1)
    """Passes over each round's rollouts."""
    num_minibatches: int = Field(1, ge=1)
    """Optimiser steps in each pass."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Longest gradient (2-norm) that is applied; a longer one is scaled down."""
    mask_truncated_completions: bool = False
    """Leave completions that were cut at the longest length out of the loss."""
    tokens_per_micro_batch: int = Field(2048, ge=1)
    """Upper bound of tokens in one forward and backward pass: it bounds memory, and changes nothing else."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Keep only what each layer gets, and compute the rest again in the backward pass: less memory, a third more
    arithmetic. auto: for models of more than 50 million parameters."""


class SwarmConfig(Section):
    """What nodes share and what they take."""

    nodes: int = Field(4, ge=1)
    """Nodes in this process."""
    local: int = Field(4, ge=0)
    """I: own rollouts in each update; also the questions that a node answers each round."""
    external: int = Field(4, ge=0)
    """J: other nodes' rollouts in each update, as far as the pool has live ones."""
    pool_size: int = Field(256, ge=1)
    """Rollouts a node keeps for sampling; the oldest go first."""
    max_age: int = Field(4, ge=0)
    """Rounds of its own after which a node drops a rollout that it has not used."""


class EvaluationConfig(Section):
    """Held-out questions: the same for every node, never trained on."""

    every: int = Field(10, ge=0)
    """Rounds between evaluations; 0: only at the start and the end."""
    questions: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Questions of each task. auto: 16 in `pond`, 4 elsewhere."""
    samples: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Completions for each question, at the sampling temperature. auto: 4 in `pond`, 1 elsewhere."""


class Config(Section):
    """A run."""

    version: Literal[1] = CONFIG_VERSION
    """Of this format."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Of everything random. The same seed gives the same figures on the same machine."""
    rounds: int = Field(100, ge=1)
    """Rounds until the run ends."""
    checkpoint_every: int = Field(1, ge=1)
    """Rounds between checkpoints: what a kill may cost."""
    threads: int = Field(0, ge=0)
    """Processor threads; 0: one for each core."""
    tasks: TasksConfig = TasksConfig()
    policy: PolicyConfig = PolicyConfig()
    learner: LearnerConfig = LearnerConfig()
    swarm: SwarmConfig = SwarmConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    def resolved(self) -> Config:
        """The same with every `auto` that does not depend on the machine made explicit."""
        config = self.model_copy(deep=True)
        pond = config.tasks.suite == "pond" and not config.tasks.tasks
        if config.policy.max_completion_length == "auto":
            config.policy.max_completion_length = 16 if pond else 256
        if config.evaluation.questions == "auto":
            config.evaluation.questions = 16 if pond else 4
        if config.evaluation.samples == "auto":
            config.evaluation.samples = 4 if pond else 1
        guppies = [name == GUPPY for name in config.policy.model]
        if config.learner.learning_rate == "auto" and all(guppies) == any(guppies):
            config.learner.learning_rate = 2e-4 if all(guppies) else 1e-6
        return config

    def to_toml(self) -> str:
        return "# A run of shoal; `shoal run --config THIS_FILE` repeats it.\n" + tomli_w.dumps(self.model_dump())


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, not yet checked. Raises `UserError` if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}") from error


def make_config(settings: dict[str, Any], source: str) -> Config:
    """A `Config` of nested settings. Raises `UserError` with the first thing that is wrong and what would be right."""
    version = settings.get("version", CONFIG_VERSION)
    if version != CONFIG_VERSION:
        raise UserError(
            f"{source} has version {version!r} of the format, and this shoal reads version {CONFIG_VERSION}: "
            "take the shoal that wrote it, or write the settings anew"
        )
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        errors = error.errors()
        unknown = [fault for fault in errors if fault["type"] == "extra_forbidden"]  # it may be missed as well
        raise UserError(f"{source}: {_explain((unknown or errors)[0])}") from error


def _explain(error: Any) -> str:
    where = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        name = ".".join(where)
        section: Any = Config
        for part in where[:-1]:
            if part in getattr(section, "model_fields", {}):
                annotation = section.model_fields[part].annotation
                section = TaskSpec if annotation == list[TaskSpec] else annotation
        return f"there is no setting '{name}'; {nearest_setting(where, section)}"
    name = ".".join(part for part in where if not part.startswith(("literal[", "constrained-")) and part not in KINDS)
    if error["type"] == "missing":
        return f"the setting '{name}' is missing"
    return f"{name} = {error['input']!r}: {error['msg'][:1].lower()}{error['msg'][1:]}"


def nearest_setting(where: list[str], section: type[Section]) -> str:
    """A hint for an unknown setting: the most similar name of its section, else of all sections."""
    prefix = ".".join(where[:-1])
    near = difflib.get_close_matches(where[-1], section.model_fields, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{f'{prefix}.' if prefix else ''}{near[0]}'?"
    everywhere = {name.rpartition(".")[2]: name for name, _ in settings_of(Config)}
    near = difflib.get_close_matches(where[-1], everywhere, n=1, cutoff=0.6)
    return f"did you mean '{everywhere[near[0]]}'?" if near else "`shoal run --help` lists them all"


def settings_of(section: type[BaseModel], prefix: str = "") -> list[tuple[str, FieldInfo]]:
    """Every setting as (dotted name, field), in the order of declaration."""
    found: list[tuple[str, FieldInfo]] = []
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found += settings_of(field.annotation, f"{prefix}{name}.")
        else:
            found.append((prefix + name, field))
    return found
