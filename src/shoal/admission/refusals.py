"""Why a message of a stranger is refused."""

from __future__ import annotations

from enum import StrEnum


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
    quote = "quote"
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
