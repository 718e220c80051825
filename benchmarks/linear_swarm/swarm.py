"""A swarm of linear softmax policies: the learning side at scale, thousands of nodes in seconds.

    result = run(LinearConfig(nodes=8, local=4, external=4, p0=0.01), seed=1)
    result.expected_SNK.mean((1, 2))     # exact pass@1 after 0, 1, ... rounds

The round is that of `node.Node`; text, transport and network are left out. A completion is one of A answers, in the
format or not: reward 1 for the right answer in the format. Both are linear in the features of the question: a constant,
and a vector in the block of its task. The constant is all that tasks share, so it is the format that spreads between
them. There are finitely many questions, so pass@1 is computed and not sampled.

Nodes are rows of arrays; nothing loops over them in a round. Suffixes: N nodes, K tasks, C questions (of all tasks), D
features of a task, F of all, A answers, X = A + 1 logits (the last is the format's), B rollouts of a node, J external
ones, G completions of each, R rounds, S = R + 1 times before, between and after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from linear_swarm.pool import LinearPool
from linear_swarm.world import Floats, Groups, Ids, Table, World, noise
from shoal.learn.advantages import FLOOR


@dataclass(frozen=True)
class LinearConfig:
    """One arm. Where a setting is also one of a run of `shoal`, it has the same meaning."""

    nodes: int = 8
    local: int = 4
    """I: own rollouts in each update."""
    external: int = 4
    """J: rollouts from the pool in each update, as far as it has live ones."""
    num_generations: int = 8
    rounds: int = 100
    pool_size: int = 256
    max_age: int = 4
    tasks: int = 6
    questions: int = 8
    """Of each task."""
    features: int = 6
    """Of each task, beside the constant that all share."""
    answers: int = 8
    p0: float | tuple[float, ...] = 0.01
    """Chance of success at the start. A number: answers are at random, and the format's chance is p0 times `answers`.
    Several: everybody has the format and leans to the right answers, of one task after another, by so much."""
    speciality: float = 0.0
    """Node n starts with this times the teacher's weights for task n mod K."""
    same_questions: bool = False
    """All nodes get the same questions in a round."""
    source: Literal["swarm", "self", "replay"] = "swarm"
    """Where external rollouts come from: other nodes; (N - 1) I more rollouts of one's own in each round, so that a
    node generates and filters as much as the swarm; or one's own of earlier rounds."""
    external_weight: Literal["none", "topr"] = "none"
    """topr: a completion of negative advantage counts min(1, policy / behaviour) (arXiv 2503.14286), which is 1 for own
    ones."""
    scale_rewards: Literal["none", "group"] = "none"
    optim: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.02
    frozen: int = 0
    """How many nodes, the last ones, never learn. All: the null model."""
    shuffle: Literal["none", "external", "all"] = "none"
    """Rewards change places at random among the completions of each rollout, if external, or of all."""

    def __post_init__(self) -> None:
        chances, most = (self.p0, 1.0) if isinstance(self.p0, tuple) else ((self.p0,), 1 / self.answers)
        if self.nodes < 1 or self.local < 1 or self.external < 0 or self.pool_size < 1 or self.max_age < 0:
            raise ValueError("nodes, local and pool_size must be at least 1, external and max_age at least 0")
        if self.num_generations < 2 or self.answers < 2:
            raise ValueError("num_generations and answers must be at least 2")
        if not chances or not all(0 < chance < most for chance in chances):
            raise ValueError(f"chances at the start must lie between 0 and {most:.4g}, not be {self.p0}")
        if self.source == "self" and self.nodes > 32:
            raise ValueError("where every node generates as much as the swarm there must be at most 32 nodes")

    @property
    def extra(self) -> int:
        """Rollouts generated beside the I own ones, with `source = "self"`."""
        return (self.nodes - 1) * self.local if self.source == "self" else 0

    @property
    def generated(self) -> int:
        """Completions that a node generates in a round."""
        return (self.local + self.extra) * self.num_generations


@dataclass(frozen=True)
class LinearResult:
    """What came of a run. Row r of R is round r + 1."""

    reward_RN: Floats
    """Honest reward: mean of a node's I own rollouts, unfiltered."""
    trained_RN: Floats
    """Mean reward over the training set, external rollouts included. A diagnostic: the filter alone raises it."""
    live_RN: Floats
    """Share of a node's own rollouts whose rewards differ."""
    external_RN: Floats
    """Number of external rollouts in an update."""
    expected_SNK: Floats
    """Exact pass@1: the mean chance of success over all questions of a task."""

    @property
    def area(self) -> float:
        """Area under exact pass@1, as mean height: over nodes, tasks and rounds, the start included."""
        return float(self.expected_SNK.mean())

    @property
    def honest(self) -> float:
        """Cumulative honest reward: summed over rounds, mean of nodes."""
        return float(self.reward_RN.mean(1).sum())


def run(config: LinearConfig, seed: int) -> LinearResult:
    """A run of `config`, a function of it and `seed`. Arms with the same seed have the same world and start, and the
    same questions and random numbers in the slots that they share."""
    world = World.make(config.tasks, config.questions, config.features, config.answers, config.p0, seed)
    weights_NFX = world.start(config.nodes, config.speciality)
    learns_N = np.arange(config.nodes) < config.nodes - config.frozen
    optim = Optim(config, weights_NFX.shape)
    slots = config.extra or config.local
    pool = LinearPool(config.nodes, slots, config.pool_size, config.max_age, config.source != "swarm")
    rows: list[tuple[Floats, ...]] = []
    expected = []

    for round in range(config.rounds):
        table = world.table(weights_NFX)
        expected.append(world.expected(table))
        tried = act(config, world, table, seed, round)
        own = tried.slots(0, config.local)
        external, present_NJ = exchange(config, pool, tried, seed, round)
        learned = own.joined(external)
        present_NB = np.pad(present_NJ, ((0, 0), (config.local, 0)), constant_values=True)
        log_ratio_NBG = table.logps(learned.asked_NB, learned.answers_NBG, learned.formatted_NBG) - learned.logps_NBG
        rewards_NBG = reshuffled(config, learned.rewards_NBG, seed, round)
        gradient_NFX = gradient(world, table, learned, coefficients(config, rewards_NBG, present_NB, log_ratio_NBG))
        weights_NFX = weights_NFX + np.where(learns_N[:, None, None], optim.step(gradient_NFX), 0.0)

        trained_N = (learned.rewards_NBG.mean(2) * present_NB).sum(1) / present_NB.sum(1)
        rows.append((own.rewards_NBG.mean((1, 2)), trained_N, own.live_NB.mean(1), present_NJ.sum(1)))
    expected.append(world.expected(world.table(weights_NFX)))
    return LinearResult(*(np.stack(column) for column in (*zip(*rows, strict=True), expected)))


def act(config: LinearConfig, world: World, table: Table, seed: int, round: int) -> Groups:
    """Every node's rollouts of a round, scored. Random numbers are drawn slot by slot: see `run`."""
    shape = (config.local + config.extra, config.nodes)
    asked_BN = noise(seed, "questions", round).integers(len(world.key_C), size=shape)
    if config.same_questions:
        asked_BN[:] = asked_BN[:, :1]
    uniforms_BNG2 = noise(seed, "answers", round).random((*shape, config.num_generations, 2))
    return table.answer(asked_BN.T, uniforms_BNG2.swapaxes(0, 1), world.key_C)


def exchange(config: LinearConfig, pool: LinearPool, tried: Groups, seed: int, round: int) -> tuple[Groups, np.ndarray]:
    """J external rollouts for each node, and which of these there are (N, J)."""
    if config.external == 0:
        return tried.slots(0, 0), np.zeros((config.nodes, 0), bool)
    rng = noise(seed, "pool", round)
    shared = tried.slots(config.local, None) if config.source == "self" else tried
    if config.source != "replay":
        pool.add(shared, round, rng)
    places_NJ = pool.sample(config.external, rng)
    if config.source == "replay":  # those of this round are in the update already
        pool.add(shared, round, rng)
    return pool.take(places_NJ), places_NJ >= 0


def coefficients(config: LinearConfig, rewards_NBG: Floats, present_NB: np.ndarray, log_ratio_NBG: Floats) -> Floats:
    """What each completion's log-probability counts in the objective: its group advantage (`learn.advantages`) times
    its weight, over the number of completions of the update (`dr_grpo` of `learn.losses.token_weights`; an answer is
    one token)."""
    advantages_NBG = rewards_NBG - rewards_NBG.mean(2, keepdims=True)
    if config.scale_rewards == "group":
        advantages_NBG = advantages_NBG / (rewards_NBG.std(2, ddof=1, keepdims=True) + FLOOR)
    if config.external_weight == "topr":
        truncated_NBG = np.exp(np.minimum(log_ratio_NBG, 0.0))
        advantages_NBG = advantages_NBG * np.where(advantages_NBG < 0, truncated_NBG, 1.0)
    counts_N = present_NB.sum(1) * rewards_NBG.shape[2]
    result_NBG: Floats = advantages_NBG * (present_NB / counts_N[:, None])[:, :, None]
    return result_NBG


def gradient(world: World, table: Table, groups: Groups, coefficients_NBG: Floats) -> Floats:
    """Gradient (N, F, X) of the sum of `coefficients` times log-probabilities by the weights, of which `table` is."""
    features_NBF = world.features_CF[groups.asked_NB]
    gradient_NFX: Floats = features_NBF.swapaxes(1, 2) @ table.scores(groups, coefficients_NBG)
    return gradient_NFX


def reshuffled(config: LinearConfig, rewards_NBG: Floats, seed: int, round: int) -> Floats:
    """The rewards to learn from: in place, or changed about within rollouts, all or the external ones."""
    if config.shuffle == "none":
        return rewards_NBG
    order_NBG: Ids = noise(seed, "shuffle", round).random(rewards_NBG.shape).argsort(2)
    if config.shuffle == "external":
        order_NBG[:, : config.local] = np.arange(rewards_NBG.shape[2])
    return np.take_along_axis(rewards_NBG, order_NBG, 2)


class Optim:
    """What to add to the weights for a gradient to climb: the rate times it, or Adam's step (arXiv 1412.6980)."""

    def __init__(self, config: LinearConfig, shape: tuple[int, ...]) -> None:
        self.rate = config.learning_rate
        self.adam = config.optim == "adam"
        self.first, self.second = (np.zeros(shape), np.zeros(shape)) if self.adam else (np.zeros(0), np.zeros(0))
        self.steps = 0

    def step(self, gradient_NFX: Floats) -> Floats:
        if not self.adam:
            return self.rate * gradient_NFX
        self.steps += 1
        self.first += 0.1 * (gradient_NFX - self.first)
        self.second += 0.001 * (gradient_NFX**2 - self.second)
        scale = np.sqrt(self.second / (1 - 0.999**self.steps)) + 1e-8
        step_NFX: Floats = (self.rate / (1 - 0.9**self.steps)) * self.first / scale
        return step_NFX
