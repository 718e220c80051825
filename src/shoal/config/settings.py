"""Every setting of a run: typed, with its meaning where it is declared and its default beside it.

A run's `config.toml` is this, complete. On the command line each setting is `--section.name VALUE`, or `--name VALUE`
for short. Where TRL has a name for a thing, it is TRL's.
"""

from __future__ import annotations

from typing import Final, Literal, Self

import tomli_w
from pydantic import Field

from shoal.config.evaluation import EvaluationConfig
from shoal.config.external import ExternalConfig
from shoal.config.learner import LearnerConfig
from shoal.config.policy import PolicyConfig, default_learning_rate, is_endpoint
from shoal.config.rewards import AnyRewardSpec, FunctionRewardSpec
from shoal.config.section import Section
from shoal.config.selection import SelectionConfig
from shoal.config.swarm import NetworkConfig, SwarmConfig
from shoal.config.tasks import EASY, TasksConfig

CONFIG_VERSION: Final = 2
ENDLESS: Final = 1_000_000
"""Rounds of a node that goes on until it is stopped."""


class Config(Section):
    """A run."""

    version: Literal[2] = CONFIG_VERSION
    """Of this format."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of everything random. The same seed gives the same figures on the same machine."""
    rounds: int = Field(100, ge=1)
    """Rounds until the run ends. 1000000 means until it is stopped: the default of `shoal join`."""
    checkpoint_every: int = Field(1, ge=0)
    """Rounds between checkpoints. A kill costs at most as many; with 0 there are none, and nothing can be resumed."""
    threads: int = Field(0, ge=0)
    """Processor threads. 0: one for each core."""
    rewards: list[AnyRewardSpec] = []
    """What answers are rewarded by (`[[rewards]]` in a file); none: the tasks' own verifier. Held-out questions are
    scored by that alone."""
    tasks: TasksConfig = TasksConfig()
    policy: PolicyConfig = PolicyConfig()
    learner: LearnerConfig = LearnerConfig()
    external: ExternalConfig = ExternalConfig()
    swarm: SwarmConfig = SwarmConfig()
    selection: SelectionConfig = SelectionConfig()
    network: NetworkConfig = NetworkConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    def resolved(self) -> Self:
        """The same with every `auto` that does not depend on the machine made explicit."""
        config = self.model_copy(deep=True)
        pond = config.tasks.suite in EASY and not config.tasks.tasks
        if config.policy.max_completion_length == "auto":
            config.policy.max_completion_length = EASY[config.tasks.suite] if pond else 256
        if config.swarm.questions_per_round == "auto":
            config.swarm.questions_per_round = config.swarm.local
        if config.evaluation.questions == "auto":
            config.evaluation.questions = 16 if pond else 4
        if config.evaluation.samples == "auto":
            config.evaluation.samples = 4 if pond else 1
        learning = [name for name in config.policy.model if not is_endpoint(name)]
        rates = {default_learning_rate(name, config.policy.lora_r > 0) for name in learning}
        if config.learner.learning_rate == "auto" and len(rates) == 1:
            config.learner.learning_rate = rates.pop()
        return config

    @property
    def code(self) -> list[str]:
        """The code of one's own that the settings name, as `module:attribute`."""
        factories = [self.policy.factory, self.learner.factory, self.selection.factory]
        functions = [spec.function for spec in self.rewards if isinstance(spec, FunctionRewardSpec)]
        return self.tasks.code + functions + [name for name in factories if name]

    def to_toml(self, without: set[str] | None = None) -> str:
        """The settings as a TOML file, less the sections in `without`."""
        settings = self.model_dump(exclude=without)
        return "# A run of shoal; `shoal run --config THIS_FILE` repeats it.\n" + tomli_w.dumps(settings)
