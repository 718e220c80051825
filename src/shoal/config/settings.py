"""Every setting of a run: typed, with its meaning where it is declared and its default beside it.

A run's `config.toml` is this, complete. On the command line each setting is `--section.name VALUE`, or `--name VALUE`
for short. Where TRL has a name for a thing, it is TRL's.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator
from pydantic.fields import FieldInfo

from shoal.errors import UserError
from shoal.untrusted import harmless, parse_toml, read_plain

CONFIG_VERSION: Final = 1
GUPPY = "guppy"
ENDLESS: Final = 1_000_000
"""Rounds of a node that goes on until it is stopped."""
EASY: Final = {"pond": 16, "tide": 16, "tagged": 32}
"""Suites for models of a million parameters: the longest completions, in tokens."""
MOST_BYTES: Final = 2**20
"""Of a file of settings."""
SHOWN: Final = 120
"""Characters of a value that a message shows."""
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
    """A named suite: `pond` (easy, what guppy can learn), `paper` (the nine tasks of the paper), `tide` (other easy
    ones) or `tagged` (those of `pond`, answered between tags)."""
    only: list[str] = []
    """These tasks of the suite alone."""
    tasks: list[TaskSpec] = []
    """Tasks of one's own in place of the suite (`[[tasks.tasks]]` in a file)."""
    partial_credit: bool = False
    """Give a task's own partial scores, as the paper does; otherwise 1 for a full answer and 0 for all else."""
    held_out: float = Field(0.2, gt=0, lt=1)
    """The share of all questions, by a hash of their text, that is kept for evaluation and never trained on."""
    score_timeout: float = Field(2.0, gt=0, allow_inf_nan=False)
    """Seconds of processor time that scoring one completion may take, before it counts as 0."""

    @property
    def code(self) -> list[str]:
        """The code of one's own that these tasks name."""
        return [spec.name for spec in self.tasks if ":" in spec.name]


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


class PolicyConfig(Section):
    """What answers, and how it decodes."""

    model: list[str] = Field([GUPPY], min_length=1)
    """A Hugging Face name, a model folder, a GGUF file or the address of an OpenAI-compatible endpoint (http://HOST/v1
    or http://HOST/v1#MODEL), which answers but never learns; give several and the nodes take them in turn."""
    engine: Literal["transformers", "vllm"] = "transformers"
    """What decodes: transformers, or vLLM in this process (CUDA, `shoal[vllm]`)."""
    num_generations: int = Field(8, ge=1)
    """G: completions for each question."""
    max_completion_length: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """The longest completion, in tokens. auto: 16 in `pond` and `tide`, 32 in `tagged`, 256 elsewhere."""
    temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Softmax temperature of sampling."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the smallest set of tokens that has this much probability."""
    device: str = "auto"
    """auto, cpu, mps, cuda, cuda:1, ..."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; weights stay float32. auto: bfloat16 on a GPU that has it in hardware, float32 elsewhere."""
    endpoint_timeout: float = Field(120.0, gt=0, allow_inf_nan=False)
    """Seconds after which a request to an endpoint has failed."""
    endpoint_requests: int = Field(4, ge=1)
    """Requests that an endpoint gets at a time."""
    vllm_gpu_memory_utilization: float = Field(0.3, gt=0, lt=1)
    """The share of the GPU's memory that vLLM takes for its copy of the weights and its cache."""
    lora_r: int = Field(0, ge=0)
    """Rank of LoRA adapters, which are then all that is trained and saved; 0: all weights are. Needs `shoal[lora]`."""
    lora_alpha: int = Field(32, ge=1)
    """What adapters add is multiplied by this over their rank."""
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    """The share of an adapter's input that is dropped in training, at random; never when answering."""
    lora_target_modules: list[str] = Field(["all-linear"], min_length=1)
    """Layers that get adapters, by the end of their names (q_proj); all-linear: every linear one but the output's."""
    _from_file: bool = PrivateAttr(False)

    @property
    def sends_key(self) -> bool:
        """Whether endpoints get the key in OPENAI_API_KEY: a file alone does not decide who receives it."""
        return not self._from_file


class LearnerConfig(Section):
    """How a node learns from its rollouts and others'."""

    learning_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["auto"] = "auto"
    """Of the optimiser. auto: 2e-4 for guppy, 1e-6 for other models; ten times that for LoRA adapters."""
    optim: Literal["adamw", "adafactor", "adamw_8bit"] = "adamw"
    """AdamW, with 8 bytes of states a parameter; Adafactor, with next to none; AdamW with 2 (CUDA, `shoal[8bit]`)."""
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Of the optimiser: each step takes this share, times the learning rate, off the weights."""
    loss_type: Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo", "gspo"] = "dr_grpo"
    """How token losses are averaged: each sequence first (grpo), over a constant (dr_grpo), over the tokens of a pass
    (dapo) or of a step (bnpo). gspo: one ratio for each sequence. cispo: the ratio is a weight, cut from above."""
    advantage: Literal["group", "rloo", "gae"] = "group"
    """What a reward is compared with: its group's mean (group), the mean of the others in it (rloo), or what a critic
    expected (gae), which makes it PPO."""
    scale_rewards: Literal["none", "group", "batch"] = "none"
    """Divide advantages by the standard deviation of rewards in their group or in the batch, or not. With gae, batch
    gives all tokens' advantages mean 0 and variance 1."""
    multi_objective_aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = "sum_then_normalize"
    """How several `[[rewards]]` become one. normalize_then_sum: each is normalised in its group first, so that none
    counts more by its wider scale (GDPO)."""
    epsilon: float = Field(0.2, gt=0)
    """Lower clip range of the probability ratio. gspo's paper has 3e-4."""
    epsilon_high: float = Field(0.28, gt=0)
    """Upper clip range of the probability ratio. gspo's paper has 4e-4. For cispo the greatest ratio itself, as 5.0."""
    beta: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Weight of the KL divergence (k3) to the policy as it was at the start; 0 keeps no copy of it.
    With LoRA there is none either: the base is that policy."""
    num_iterations: int = Field(1, ge=1)
    """Passes over each round's rollouts."""
    num_minibatches: int = Field(1, ge=1)
    """Optimiser steps in each pass."""
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount for each token (gae)."""
    lam: float = Field(0.95, ge=0, le=1)
    """How far ahead the critic looks past its own estimates: 0 one token, 1 to the end (gae)."""
    vf_coef: float = Field(0.1, ge=0, allow_inf_nan=False)
    """Weight of the critic's loss (gae)."""
    cliprange_value: float = Field(0.2, gt=0)
    """How far an estimate may move from what it was before the round and still lower the critic's loss (gae)."""
    critic_learning_rate: float = Field(1e-2, ge=0, allow_inf_nan=False)
    """Of the critic's own weights (gae)."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Longest gradient (2-norm) that is applied; a longer one is scaled down."""
    mask_truncated_completions: bool = False
    """Leave completions that were cut at the longest length out of the loss."""
    tokens_per_micro_batch: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Upper bound of tokens in one forward and backward pass: it bounds memory, and changes no result. auto: 768, on a
    GPU 16384."""
    external_weight: Literal["none", "topr", "mask", "tis", "mis", "luffy"] = "topr"
    """What other nodes' completions count, at most 1, by how likely they are here and were where they were made. none:
    1, as in the paper. topr: 1 with a positive advantage, min(1, ratio) with a negative one. mask: 0 with a negative
    one that has become unlikely. tis, mis: each token's ratio, truncated at 1, or masked far from it. luffy:
    p / (p + 0.1) in place of log p."""
    external_gate: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Leave out others' completions of positive advantage that are less likely here than own ones by more than this, in
    nats for each token, and of their group's failures as much as of its successes; 0: take them all."""
    external_baseline_shift: float = Field(-0.1, ge=-1, le=1, allow_inf_nan=False)
    """Added to the baseline of others' rollouts (AsymRE): slightly negative, it trusts their successes over their
    failures; 0, as in the paper, leaves it."""
    external_limit: float = Field(1.0, ge=0, allow_inf_nan=False)
    """How many times the pull of one's own groups (the sum of |advantage| over their tokens, a running mean) another
    maker's groups may have on average in an update; what is above is scaled down. 0, as in the paper: no limit."""
    balance: Literal["none", "source"] = "none"
    """source: own and others' rollouts count as I to J, however many of either are live."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Keep only what each layer gets, and compute the rest again in the backward pass: less memory, a third more
    arithmetic. auto: where one micro-batch would otherwise keep more than 2 GiB or a quarter of the free memory."""

    fsdp: bool = False
    """Under torchrun: shard weights, gradients and the optimiser's states over the ranks (FSDP2), for models that one
    GPU cannot hold. Otherwise every rank holds all of them."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.loss_type == "cispo" and self.epsilon_high < 1:
            raise ValueError(
                f"epsilon_high = {self.epsilon_high} would cut every ratio of cispo, of which it is the greatest; "
                "5.0 is usual"
            )
        if self.advantage == "gae" and self.scale_rewards == "group":
            raise ValueError("scale_rewards = 'group' has no meaning with gae, which knows no groups; take 'batch'")
        return self


class SwarmConfig(Section):
    """What nodes share and what they take."""

    nodes: int = Field(4, ge=1)
    """Nodes in this process."""
    local: int = Field(4, ge=0)
    """I: own rollouts in each update."""
    external: int = Field(4, ge=0)
    """J: other nodes' rollouts in each update, as far as the pool has live ones."""
    asked: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Questions that a node answers each round. auto: I. Of more than I the live ones are learned from first, as in
    dynamic sampling (DAPO)."""
    upload: int = Field(0, ge=0)
    """Rollouts that a node sends each round at most; 0: all it made."""
    send: Literal["learnable", "live", "first"] = "learnable"
    """Which, where `upload` allows fewer than were made. live: those whose rewards differ, first. learnable: of these
    the ones nearest to half right, of equals those of tasks sent least."""
    stacked: bool | Literal["auto"] = "auto"
    """Run the nodes of this process as one batched program. auto: on a GPU, where all have the same model."""
    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Processes that keep the models of this run's nodes, each some of them; 0: none but this one. auto: on a processor
    one for each core, where models have at most 20 million parameters and the run is not over at once."""
    pool_size: int = Field(256, ge=1)
    """Rollouts a node keeps for sampling. When it is full, the oldest of the maker with most of them goes."""
    max_age: int = Field(4, ge=0)
    """Rounds of its own after which a node drops a rollout that it has not used."""


class SamplingConfig(Section):
    """Which of the pool's rollouts a node learns from. As they stand: of the live ones as in the paper, but by turns of
    their makers, and but for `fill`."""

    learnability: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Prefer tasks that this node solves half of the time: weight [p (1 - p)]^learnability; 0: no preference."""
    max_per_peer: int = Field(0, ge=0)
    """Rollouts of one node in an update at most; 0: any number."""
    max_per_question: int = Field(0, ge=0)
    """Rollouts of one question in an update at most; 0: any number."""
    drop_duplicates: bool = False
    """Leave out rollouts of others with the same answers to the same question as one learned from of late."""
    keep_solved: bool = False
    """Take also rollouts that are right throughout, for tasks that this node solves less than a fifth of the time; its
    own success rate is then their baseline."""
    fill: bool = True
    """Others' live rollouts, where the pool has more than J, take the places of own ones from which nothing is to be
    learned: updates then have I + J live rollouts at the cost of I."""
    newcomer_share: float = Field(1.0, gt=0, le=1)
    """The share of J, but at least one rollout, that nodes get together of whom fewer than 16 rollouts have come."""
    trust: bool = False
    """Put a node before others in as many updates as the gate let its successes through of late (needs an
    `external_gate`), and last in the rest; newcomers, where they have a share of their own, as newcomers together."""
    adapt: Literal["none", "ess", "progress", "both"] = "none"
    """Move J, and I the other way, within I + J: fewer external ones where their effective sample size is below a half
    (ess: needs an `external_weight` or gate), back where own reward rises less than before the move (progress)."""


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


class NetworkConfig(Section):
    """How a node of `shoal join` reaches its swarm."""

    swarm: str = "reef"
    """Name of the swarm: letters, digits, - _ . (up to 64)."""
    connect: list[str] = []
    """Relays or nodes to reach: HOST:PORT, tcp/HOST:PORT or tls/HOST:PORT. Without any, nodes of the same network are
    found."""
    listen: list[str] = []
    """Addresses where other nodes may reach this one (tcp/0.0.0.0:7447). Without any, a free port is taken."""
    lan: bool = True
    """Find nodes on the local network by multicast; without effect where `connect` says whom to reach."""
    secret_file: str = ""
    """A file with the secret of a private swarm, the same for all its nodes."""
    tls_ca: str = ""
    """Certificate (PEM) of the authority that signed the relay's, where the system does not know it."""
    tls_certificate: str = ""
    """This node's own certificate (PEM), for relays that ask for one (mutual TLS)."""
    tls_key: str = ""
    """The key (PEM) of `tls_certificate`."""
    neighbours: int = Field(8, ge=2, le=32)
    """Nodes to listen to at the start; then as many as it takes to have J live rollouts."""
    share_logprobs: bool = False
    """Send the log-probability of each token along. Within one process too."""


class AdmissionConfig(Section):
    """What a node takes from strangers. Whatever is more, older or larger is refused and counted."""

    max_bytes: int = Field(262_144, ge=1)
    """Of one message."""
    peer_rate: float = Field(40.0, gt=0, allow_inf_nan=False)
    """Rollouts in a second that one key may send."""
    max_seconds: float = Field(900.0, gt=0, allow_inf_nan=False)
    """Age of a rollout by its maker's clock."""
    max_slots: int = Field(64, ge=1, le=64)
    """Questions that one key may answer in one of its rounds."""
    max_characters: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Characters in a completion. auto: 16 for each token of `max_completion_length`."""
    mute_seconds: float = Field(600.0, gt=0, allow_inf_nan=False)
    """How long nothing is taken from a key that broke the rules five times; each time it is twice as long."""


class EvaluationConfig(Section):
    """Held-out questions: the same for every node, never trained on."""

    every: int = Field(10, ge=0)
    """Rounds between evaluations; 0: only at the start and the end."""
    questions: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Questions of each task. auto: 16 in `pond` and its like, 4 elsewhere."""
    samples: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Completions for each question, at the sampling temperature. auto: 4 in `pond` and its like, 1
    elsewhere."""
    judges: list[str] = []
    """Judges that are asked after each round: http://HOST:PORT#KEY (`shoal judge`; for `shoal join` alone)."""


class Config(Section):
    """A run."""

    version: Literal[1] = CONFIG_VERSION
    """Of this format."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Of everything random. The same seed gives the same figures on the same machine."""
    rounds: int = Field(100, ge=1)
    """Rounds until the run ends; 1000000 means until it is stopped, and is the default of `shoal join`."""
    checkpoint_every: int = Field(1, ge=0)
    """Rounds between checkpoints: what a kill may cost. 0: there are none at all, so that nothing can be resumed."""
    threads: int = Field(0, ge=0)
    """Processor threads; 0: one for each core."""
    rewards: list[RewardSpec] = []
    """What answers are rewarded by (`[[rewards]]` in a file); none: the tasks' own verifier. Held-out questions are
    scored by that alone."""
    tasks: TasksConfig = TasksConfig()
    policy: PolicyConfig = PolicyConfig()
    learner: LearnerConfig = LearnerConfig()
    swarm: SwarmConfig = SwarmConfig()
    sampling: SamplingConfig = SamplingConfig()
    network: NetworkConfig = NetworkConfig()
    admission: AdmissionConfig = AdmissionConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    experiment: ExperimentConfig = ExperimentConfig()

    def resolved(self) -> Config:
        """The same with every `auto` that does not depend on the machine made explicit."""
        config = self.model_copy(deep=True)
        pond = config.tasks.suite in EASY and not config.tasks.tasks
        if config.policy.max_completion_length == "auto":
            config.policy.max_completion_length = EASY[config.tasks.suite] if pond else 256
        if config.swarm.asked == "auto":
            config.swarm.asked = config.swarm.local
        if config.admission.max_characters == "auto":
            config.admission.max_characters = 16 * config.policy.max_completion_length
        if config.evaluation.questions == "auto":
            config.evaluation.questions = 16 if pond else 4
        if config.evaluation.samples == "auto":
            config.evaluation.samples = 4 if pond else 1
        learning = [name for name in config.policy.model if not is_endpoint(name)]
        rates = {default_learning_rate(name, config.policy.lora_r) for name in learning}
        if config.learner.learning_rate == "auto" and len(rates) == 1:
            config.learner.learning_rate = rates.pop()
        return config

    @property
    def code(self) -> list[str]:
        """The code of one's own that the settings name, as `module:attribute`."""
        return self.tasks.code + [spec.function for spec in self.rewards if spec.function]

    def to_toml(self) -> str:
        return "# A run of shoal; `shoal run --config THIS_FILE` repeats it.\n" + tomli_w.dumps(self.model_dump())


def is_endpoint(model: str) -> bool:
    """Whether a model's name is the address of a server."""
    return model.startswith(("http://", "https://"))


def default_learning_rate(model: str, lora_r: int) -> float:
    """What `auto` means for a model: guppy learns steadily with 2e-4, pretrained models with TRL's 1e-6; adapters take
    ten times as much (Schulman, LoRA Without Regret, 2025)."""
    full = (2e-4, 2e-3) if model == GUPPY else (1e-6, 1e-5)
    return full[lora_r > 0]


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, not yet checked. Raises `UserError` if it cannot be read."""
    try:
        return parse_toml(read_plain(path, MOST_BYTES))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is not TOML as shoal reads it: {error}") from error


def make_config(
    settings: dict[str, Any], source: str, allow_code: bool = False, typed_endpoints: bool = False
) -> Config:
    """A `Config` of nested settings. Raises `UserError` with the first thing that is wrong and what would be right.

    What comes from a file is not trusted. `allow_code`: the user allows this source to name code that is run.
    `typed_endpoints`: the user typed the addresses of endpoints, so that they may receive his key.
    """
    version = settings.get("version", CONFIG_VERSION)
    if version != CONFIG_VERSION:
        raise UserError(
            f"{source} has version {_shown(version)} of the format, and this shoal reads version {CONFIG_VERSION}: "
            "take the shoal that wrote it, or write the settings anew"
        )
    try:
        config = Config.model_validate(settings)
    except ValidationError as error:
        errors = error.errors()
        unknown = [fault for fault in errors if fault["type"] == "extra_forbidden"]  # it may be missed as well
        raise UserError(f"{source}: {_explain((unknown or errors)[0])}") from error
    if not allow_code:
        refuse_code(config.code, source)
    config.policy._from_file = not typed_endpoints and any(map(is_endpoint, config.policy.model))
    return config


def refuse_code(code: list[str], source: str) -> None:
    """Raises `UserError` if `source` names any code: to import it is to run it."""
    if code:
        raise UserError(
            f"{source} names code that would run here ({_shown(code[0])}): add --allow-code if you trust the file and "
            "that code"
        )


def _explain(error: Any) -> str:
    where = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        name = ".".join(where)
        section: Any = Config
        for part in where[:-1]:
            if part in getattr(section, "model_fields", {}):
                annotation = section.model_fields[part].annotation
                section = next((s for s in (TaskSpec, RewardSpec) if annotation == list[s]), annotation)  # type: ignore[valid-type]
        return f"there is no setting '{name}'; {nearest_setting(where, section)}"
    name = ".".join(part for part in where if not part.startswith(("literal[", "constrained-")) and part not in KINDS)
    if error["type"] == "missing":
        return f"the setting '{name}' is missing"
    if error["type"] == "value_error":  # settings that do not agree: the message names them
        return f"{name}: {error['ctx']['error']}"
    return f"{name} = {_shown(error['input'])}: {error['msg'][:1].lower()}{error['msg'][1:]}"


def _shown(value: Any) -> str:
    """A value as a message shows it."""
    return harmless(repr(value), SHOWN)


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
