"""What is simulated: how many nodes, how fast they are, what the network between them does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NetConfig:
    """A network. Times are seconds; shares and chances are in [0, 1]."""

    nodes: int = 64
    observers: int = 16
    """How many of them do everything by the real code; these stay."""
    seconds: float = 240.0
    warm_up: float = 120.0
    """Of these seconds, the first that are not measured."""
    seed: int = 0
    local: int = 4
    """I: rollouts of a round."""
    peers: int = 4
    """J: live rollouts of others that an update can use."""
    num_generations: int = 8
    pool_size: int = 256
    max_age: int = 4
    round_seconds: float = 10.0
    """Median of nodes; `round_spread` is the standard deviation of the logarithm, `round_jitter` that of one's own."""
    round_spread: float = 0.7
    round_jitter: float = 0.1
    skill: float = -2.0
    """Mean of the logit of a node's chance of success, and its standard deviation."""
    skill_spread: float = 1.5
    wrong: int = 31
    """Different wrong answers to a question; there is one right one."""
    characters: float = 400.0
    """Median of a completion."""
    delay: float = 0.05
    """Median of links; the logarithms' standard deviations between links, and between messages of one."""
    delay_spread: float = 1.0
    jitter: float = 0.5
    loss: float = 0.05
    """Chance that a message never comes."""
    skew: float = 2.0
    """Standard deviation of a node's clock."""
    session: float = 1800.0
    """Mean stay of a node that is no observer; another comes as one goes."""
    cut: tuple[float, float] | None = None
    """When the network falls into two, and when it heals (seconds from the start)."""
    cut_share: float = 0.5
