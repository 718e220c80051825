"""Every setting of a run: typed, with its meaning where it is declared and its default beside it.

A run's `config.toml` is this, complete. On the command line each setting is `--section.name VALUE`, or `--name VALUE`
for short. Where TRL has a name for a thing, it is TRL's.
"""

from typing import Final, Self

import tomli_w
from pydantic import Field, model_validator

from shoal.config.own_code import is_own
from shoal.config.policy import (
    PRETRAINED,
    SUITE_MODELS,
    PolicyConfig,
    default_learning_rate,
    is_endpoint,
    is_own_policy,
    is_small,
)
from shoal.config.rewards import FunctionSection, RewardSpec
from shoal.config.sections import (
    EvaluationConfig,
    LearnerConfig,
    NetworkConfig,
    PeersConfig,
    RoundConfig,
    Section,
    SelectionConfig,
)
from shoal.config.tasks import DATA, EASY, TasksConfig

CONFIG_VERSION: Final = 2
"""Of the format of files, which say it beside their settings."""
ENDLESS: Final = 1_000_000
"""Rounds of a node that goes on until it is stopped."""
HELD_OUT: Final = 64
"""Held-out questions of all tasks together."""
PAPER_TASKS: Final = 9
"""Tasks in the suite `paper`."""


class Config(Section):
    """A run."""

    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of everything random. The same seed gives the same figures on the same machine."""
    rounds: int = Field(100, ge=1)
    """Rounds until the run ends. 1000000 means until it is stopped: the default of `shoal join`."""
    checkpoint_every: int = Field(10, ge=0)
    """Rounds between checkpoints. A run that is killed loses at most these. 0: none, so that nothing can be resumed."""
    threads: int = Field(0, ge=0, le=1024)
    """Processor threads. 0: one for each core that is free when the run starts. A resumed run keeps their number: the
    last digits may depend on it."""
    report_to: list[str] = []
    """Trackers that get the metrics and some rollouts of each round: trackio, wandb, tensorboard, one of an installed
    package, or module:attribute (see docs/guides/trackers.md). It can be given several times."""
    rewards: list[RewardSpec] = []
    """What answers are rewarded by (`[[rewards]]` in a file); none: the tasks' own verifier. Held-out questions are
    scored by that alone."""
    tasks: TasksConfig = TasksConfig()
    policy: PolicyConfig = PolicyConfig()
    learner: LearnerConfig = LearnerConfig()
    peers: PeersConfig = PeersConfig()
    round: RoundConfig = RoundConfig()
    selection: SelectionConfig = SelectionConfig()
    network: NetworkConfig = NetworkConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _choose_model(self) -> Self:
        """Some suites have a default model of their own. A data set has a pretrained one, and one node that learns from
        as many rollouts as it would in a swarm."""
        own = self.tasks.sources
        data = any(spec.name == DATA for spec in own)
        default = PRETRAINED if data else None if own else SUITE_MODELS.get(self.tasks.suite)
        if default and "model" not in self.policy.model_fields_set:
            self.policy.model = [default]
        if data and "nodes" not in self.round.model_fields_set:
            self.round.nodes = len(self.policy.model)
            if self.round.nodes == 1 and "local" not in self.round.model_fields_set:
                self.round.local = 8
        return self

    def resolved(self) -> Self:
        """The same with every `auto` that does not depend on the machine made explicit. `runs.choices` also looks at
        the tasks' right answers."""
        config = self.model_copy(deep=True)
        own = len(config.tasks.sources)
        easy = config.tasks.suite in EASY and not own
        learning = config.local_models
        pond = easy and all(map(is_small, learning))
        if config.policy.max_completion_length == "auto":
            config.policy.max_completion_length = EASY[config.tasks.suite] if easy else 64 if own else 256
        if config.round.questions_per_round == "auto":
            config.round.questions_per_round = config.round.local
        if config.evaluation.questions == "auto":
            tasks = own or len(config.tasks.only) or PAPER_TASKS
            several = config.tasks.suite != "games"  # a suite of one task
            config.evaluation.questions = 16 if pond and several else max(4, HELD_OUT // (tasks if several else 1))
        if config.evaluation.samples == "auto":
            config.evaluation.samples = 4 if pond else 1
        rates = {default_learning_rate(name, config.policy.lora_r > 0) for name in learning}
        if config.learner.learning_rate == "auto" and len(rates) == 1:
            config.learner.learning_rate = rates.pop()
        return config

    @property
    def own_policies(self) -> list[str]:
        """The models that are code of one's own."""
        return [name for name in self.policy.model if is_own_policy(name)]

    @property
    def node_models(self) -> dict[str, str]:
        """The nodes of a run in one process, and the model from which each begins: they take the models in turn."""
        models = self.policy.model
        return {f"node-{place + 1}": models[place % len(models)] for place in range(self.round.nodes)}

    @property
    def local_models(self) -> list[str]:
        """The models that shoal loads and trains in this process or its workers."""
        own = self.own_policies
        return [name for name in dict.fromkeys(self.policy.model) if not is_endpoint(name) and name not in own]

    @property
    def code(self) -> list[str]:
        """The code of one's own that the settings name, as `module:attribute`."""
        named = self.learner.loss_type, self.peers.weight, self.network.transport, self.policy.engine, *self.report_to
        parts = [*self.own_policies, *filter(is_own, (*named, self.learner.factory, self.selection.rule))]
        functions = [spec.function for spec in self.rewards if isinstance(spec, FunctionSection)]
        return self.tasks.code + functions + parts

    def to_toml(self, without: set[str] | None = None) -> str:
        """The settings as a TOML file, less the sections in `without`."""
        settings = self.model_dump(exclude=without)
        head = f"# What repeats this run: shoal run (or join) --config THIS_FILE\nversion = {CONFIG_VERSION}\n"
        return head + tomli_w.dumps(settings)
