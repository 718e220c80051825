"""Sections of settings: `[round]`, `[network]`, `[selection]`, `[learner]`, `[peers]`, `[evaluation]`.

The text below a setting is its meaning, which `--help` and the settings page show.
"""

import os
import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.fields import FieldInfo

from shoal.config.display_name import fault
from shoal.config.own_code import is_own


class Section(BaseModel):
    """A group of settings: unknown names are refused, meanings are the docstrings below the fields."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, validate_assignment=True)


def settings_of(section: type[BaseModel], prefix: str = "") -> list[tuple[str, FieldInfo]]:
    """Every setting as (dotted name, field), in the order of declaration."""
    found: list[tuple[str, FieldInfo]] = []
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found += settings_of(field.annotation, f"{prefix}{name}.")
        else:
            found.append((prefix + name, field))
    return found


class RoundConfig(Section):
    """A round: how many nodes there are, and what each answers, takes and learns from."""

    nodes: int = Field(4, ge=1)
    """Nodes in this process. With a data set the default is one for each model."""
    local: int = Field(4, ge=0)
    """I: own rollouts in each update. With a data set and one node the default is 8."""
    peers: int = Field(4, ge=0)
    """J: peers' rollouts in each update. There are fewer if the pool has fewer live ones."""
    questions_per_round: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Questions that a node answers in each round. auto: I. If there are more, live ones are learned from first."""
    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Processes that hold this run's models; 0: none but this one. auto: one for each core, on a CPU, for models of at
    most 200 million parameters that fit into memory, in a run that takes longer than the processes take to start."""
    on: Annotated[str, Field(pattern=r"^(ray(://\S+)?)?$")] = ""
    """Where this run's models are: on this machine; ray: on a Ray cluster, each node in an actor; ray://HOST:PORT: on
    one elsewhere."""
    gpus: float = Field(0.0, ge=0, le=1)
    """The share of a GPU that Ray sets aside for a node."""
    memory: float = Field(0.0, ge=0)
    """Memory that Ray sets aside for a node, in GB; 0: it does not look."""


class NetworkConfig(Section):
    """How a node of `shoal join` reaches its swarm."""

    name: str = "lagoon"
    """Name of the swarm: up to 64 letters, digits, dots, - and _."""
    transport: str = "auto"
    """How messages travel. zenoh: over the network, by relays or within a local one; place: through a folder or URL;
    auto: by what `connect` names; module:attribute: a transport of your own (docs/extend/transport.md), which reads
    what it likes of the settings below."""
    connect: list[str] = []
    """zenoh: relays or nodes to connect to, HOST:PORT, tcp/HOST:PORT or tls/HOST:PORT; if neither `connect` nor
    `listen` is set, the node finds others on its local network. place: a folder, a URL such as s3://BUCKET/FOLDER, or
    a list of members and the place that this node writes to."""
    keep_mb: int = Field(256, ge=1)
    """place: megabytes of this node's files that stay there; older ones are removed, and those of 30 days."""
    listen: list[str] = []
    """Addresses where other nodes can connect to this one (tcp/0.0.0.0:7447); with zenoh not together with `connect`,
    and if empty, a free port."""
    secret_file: str = ""
    """A file with the secret of a private swarm, the same for all its nodes."""
    tls: str = ""
    """Certificate (PEM) of the authority that signed the relay's certificate, if the system does not know it. Or a
    folder with it as ca.pem and, for relays that ask for one (mutual TLS), this node's certificate.pem and key.pem."""
    display_name: str = ""
    """What people see beside the name of this node's key, such as the name of its owner. It proves nothing: anybody may
    choose any name. Up to 32 letters of one script, digits, spaces, dots, -, _ and '."""

    not_kept: bool = False
    """Mark what this node shares as not to be kept: archives leave it out. Otherwise anybody may keep it and learn from
    it, under CC0-1.0 (docs/guides/archive.md)."""

    @property
    def carrier(self) -> str:
        """The transport, also where `auto` leaves it to what `connect` names: a place is a URL, or a file or folder."""
        places = any(re.match(r"[a-z0-9+.-]{2,}://|[/.~]", word) or os.path.exists(word) for word in self.connect)
        return self.transport if self.transport != "auto" else "place" if places else "zenoh"

    @field_validator("display_name")
    @classmethod
    def _check_display_name(cls, name: str) -> str:
        if name and (why := fault(name)):
            raise ValueError(why)
        return name


class SelectionConfig(Section):
    """Which rollouts a node learns from. The paper's rule is: peers' live ones, at random."""

    fill: bool = True
    """Replace own rollouts that carry no gradient by peers' live ones, if the pool has more than J of them."""
    rule: str = "fair"
    """How peers' places are given. fair: their makers take turns. module:attribute: a selection of your own, which is
    called with the Config (see examples/own_selection.py)."""

    @field_validator("rule")
    @classmethod
    def _check_rule(cls, name: str) -> str:
        if name != "fair" and not is_own(name):
            raise ValueError("choose from fair and module:attribute")
        return name


class LearnerConfig(Section):
    """How a node updates its model. How much peers' rollouts count is `[peers]`."""

    learning_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["auto"] = "auto"
    """Learning rate of the optimizer. auto: 4e-4 for guppy and folders with less than 20 MB of weights, 2e-4 for
    guppy-games and guppy-eye, 1e-6 for Gemma, 2e-5 for other models; ten times that for LoRA adapters."""
    optim: Literal["adamw", "adafactor"] = "adamw"
    """The optimizer. adamw keeps 8 bytes of state for each parameter, adafactor almost none."""
    loss_type: str = "dr_grpo"
    """The loss: grpo, dr_grpo, dapo, cispo, gspo or module:attribute. Parameters may follow:
    "gspo(epsilon=3e-4, epsilon_high=4e-4)" (docs/concepts/update.md)."""
    scale_rewards: Literal["none", "group", "batch"] = "none"
    """Divide advantages by the standard deviation of the rewards of their group, of the whole batch, or not at all."""
    num_iterations: int = Field(1, ge=1)
    """Optimizer steps on each round's rollouts."""
    factory: str = ""
    """A learner of your own, in place of shoal's. It is called with the policy and the Config."""


class PeersConfig(Section):
    """How much peers' rollouts count in an update."""

    weight: str = "topr"
    """Weight of a peer's completion, at most 1. none: 1, as in the paper. topr: 1 with a positive advantage;
    min(1, likelihood ratio) with a negative one (TOPR, arXiv 2503.14286). Or one of your own, as module:attribute.
    Parameters may follow. "none(baseline_shift=0, limit=0)" is the paper's rule (docs/concepts/update.md)."""

    shorten: Literal["auto", "on", "off"] = "auto"
    """Take words out of peers' right answers that this node hardly says and that the answers do not need, so that they
    cannot teach anything else, and learn for a time nothing from makers whose right answers alone have such words
    (docs/concepts/attacks.md). auto: on for `shoal join` and with `experience`, off
    in a private swarm."""

    experience: str = ""
    """An archive (`shoal archive`) from which a node learns as if its rollouts came from peers now."""


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
