"""What a node accepts from strangers at most, and why it refuses."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from shoal.config.settings import Config
from shoal.wire.rollouts import MAX_BYTES
from shoal.wire.signed import OLD

CHARACTERS_PER_TOKEN = 16
KEPT = 7 * 86_400.0  # seconds that a rollout may be old in a place, whose nodes need not be there at the same time
LONG_TURNS = 8  # turns of the greatest length that a conversation may add up to; most turns are far shorter


@dataclass(frozen=True)
class AdmissionLimits:
    """Anything above these limits is refused and counted.

    AdmissionLimits(max_characters=200)
    AdmissionLimits.of(config)          # what the settings of a node say
    """

    max_bytes: int = 262_144
    """Bytes of one message; more for a node whose own messages may be larger."""
    peer_rate: float = 40.0
    """Rollouts per second from one key."""
    max_characters: int = 4096
    """Characters of one completion, or of one turn."""
    max_slots: int = 64
    """Questions that one key may answer in one of its rounds. At most 64: they are kept as bits of one number."""
    max_seconds: float = OLD
    """Age of a rollout in seconds, by the clock of its maker."""
    mute_seconds: float = 600.0
    """Seconds for which a key is muted that broke the rules too often. Each further time is twice as long."""

    @property
    def all_characters(self) -> int:
        """Characters of all turns of a conversation."""
        return LONG_TURNS * self.max_characters

    @classmethod
    def of(cls, config: Config) -> Self:
        """The limits of a node with these settings. Longer completions and larger groups than its own are cut or
        refused, so its own bound the bytes."""
        longest = CHARACTERS_PER_TOKEN * int(config.resolved().policy.max_completion_length)
        max_bytes = min(MAX_BYTES, max(cls.max_bytes, config.policy.num_generations * longest))
        max_seconds = KEPT if config.network.carrier == "place" else OLD
        return cls(max_bytes, max_characters=longest, max_seconds=max_seconds)


class Reason(StrEnum):
    """Why a message was refused, in the order of the checks."""

    size = "size"
    malformed = "malformed"
    version = "version"
    swarm = "swarm"
    age = "age"
    future = "future"
    key = "key"
    signature = "signature"
    muted = "muted"
    name_taken = "name taken"
    repeated = "repeated"
    round = "round"
    quota = "quota"
    name = "name"
    completions = "completions"
    length = "length"
    markers = "markers"
    task = "task"
    seed = "seed"
    question = "question"
    held_out = "held out"
    slow_question = "slow question"
    slow_task = "slow task"
    slow = "slow"
    crash = "crash"
    replay = "replay"
    environment = "environment"
    no_verdict = "no verdict"
    duplicate = "duplicate"


OFFENCES = {
    **dict.fromkeys((Reason.name, Reason.completions, Reason.seed, Reason.question), 1.0),
    **dict.fromkeys((Reason.slow, Reason.crash), 2.5),
}
"""What no honest program sends, and its weight: what takes this node's time weighs more. Other reasons may be chance,
another configuration, other data or the network."""


class Refused(Exception):  # noqa: N818 (it is an answer, not a fault)
    """A message was refused, for this reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason
