"""The linear swarm: that it is shoal's own mathematics, and what sharing and the controls do in it.

Thresholds of the trends lie well inside what seeds 1 to 10 gave (`docs/studies/linear`), and three other sets of eight
seeds (11, 21 and 31 onwards) passed too: where a figure differs by a third the test asks for a tenth or a fifth, where
it is to be equal it allows three standard errors.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from linear_swarm.pool import LinearPool
from linear_swarm.swarm import LinearConfig, Optim, act, coefficients, gradient, reshuffled, run
from linear_swarm.world import CERTAIN, Groups, World

from shoal.learn.advantages import advantages
from shoal.learn.losses.base import Average, Tokens
from shoal.learn.losses.clipped import DrGRPO
from shoal.node import Node
from shoal.protocols import UpdateResult
from shoal.rollout import Completion, Message, Part, Question, QuestionId, Rollout, Scored
from shoal.selection.pool import Pool
from shoal.selection.selection import FairSelection

SHARED = LinearConfig(p0=0.01)
ALONE = replace(SHARED, local=8, external=0)
SPECIALISTS = LinearConfig(answers=64, p0=0.002, speciality=2.0, learning_rate=0.1)
SEEDS = range(1, 9)


def world_of(config: LinearConfig, seed: int = 1) -> World:
    return World.make(config.tasks, config.questions, config.features, config.answers, config.p0, seed)


def areas(config: LinearConfig) -> np.ndarray:
    return np.array([run(config, seed).area for seed in SEEDS])


def uneven(config: LinearConfig, seed: int = 1) -> tuple[World, np.ndarray, Groups]:
    """A world, weights all different, and what such policies tried."""
    world = world_of(config, seed)
    weights_NFX = world.start(config.nodes, 0.0)
    weights_NFX += np.random.default_rng(seed).normal(0, 0.5, weights_NFX.shape)
    return world, weights_NFX, act(config, world, world.table(weights_NFX), seed, 0)


# The same mathematics


@pytest.mark.parametrize("weight", ["none", "topr"])
@pytest.mark.parametrize("scale", ["none", "group"])
def test_the_gradient_is_what_advantages_and_token_weights_imply(weight: str, scale: str) -> None:
    """The objective by hand, of shoal's own functions, and its finite differences in float64."""
    small = LinearConfig(nodes=2, local=4, tasks=2, questions=3, features=2, answers=3, p0=0.2, num_generations=4)
    world, behaviour_NFX, groups = uneven(small)
    config = replace(small, local=2, external=2, external_weight=weight, scale_rewards=scale)  # type: ignore[arg-type]
    groups.rewards_NBG[:, 2:] = [[1, 0, 0, 1], [0, 1, 0, 0]]  # both external rollouts are live
    weights_NFX = behaviour_NFX + np.random.default_rng(2).normal(0, 0.5, behaviour_NFX.shape)
    present_NB = np.array([[1, 1, 1, 1], [1, 1, 1, 0]], bool)  # node 1 found one external rollout
    groups.logps_NBG[:, :2] = logps_by_hand(world, weights_NFX, groups)[:, :2]  # own ones are from the policy as it is

    exact_NFX = update_of(config, world, weights_NFX, groups, present_NB)
    ratio_NBG = np.exp(logps_by_hand(world, weights_NFX, groups) - groups.logps_NBG)

    def objective(weights_NFX: np.ndarray, node: int) -> float:
        logps_BG, total = logps_by_hand(world, weights_NFX, groups)[node], 0.0
        slots = np.flatnonzero(present_NB[node])
        per_token = Average.constant.weights([1] * (len(slots) * 4), 1)[0]
        for slot in slots:
            for k, advantage in enumerate(advantages([groups.rewards_NBG[node, slot].tolist()], scale)[0]):
                truncated = weight == "topr" and slot >= 2 and advantage < 0
                factor = min(1.0, ratio_NBG[node, slot, k]) if truncated else 1.0
                total += factor * advantage * per_token * logps_BG[slot, k]
        return total

    for index in np.ndindex(weights_NFX.shape):
        step = np.zeros_like(weights_NFX)
        step[index] = 1e-5
        slope = (objective(weights_NFX + step, index[0]) - objective(weights_NFX - step, index[0])) / 2e-5
        assert slope == pytest.approx(exact_NFX[index], abs=1e-8)
    assert np.abs(exact_NFX).max() > 0.01


def logps_by_hand(world: World, weights_NFX: np.ndarray, groups: Groups) -> np.ndarray:
    logps_NBG = np.zeros(groups.answers_NBG.shape)
    for node, slot, k in np.ndindex(logps_NBG.shape):
        logits = world.features_CF[groups.asked_NB[node, slot]] @ weights_NFX[node]
        chances = np.exp(logits[:-1]) / np.exp(logits[:-1]).sum()
        format = 1 / (1 + np.exp(-logits[-1]))
        kept = format if groups.formatted_NBG[node, slot, k] else 1 - format
        logps_NBG[node, slot, k] = np.log(chances[groups.answers_NBG[node, slot, k]] * kept)
    return logps_NBG


def update_of(
    config: LinearConfig, world: World, weights_NFX: np.ndarray, groups: Groups, present_NB: np.ndarray
) -> np.ndarray:
    table = world.table(weights_NFX)
    log_ratio_NBG = table.logps(groups.asked_NB, groups.answers_NBG, groups.formatted_NBG) - groups.logps_NBG
    coefficients_NBG = coefficients(config, groups.rewards_NBG, present_NB, log_ratio_NBG)
    return gradient(world, table, groups, coefficients_NBG)


def test_topr_truncates_the_ratio_of_negatives_alone() -> None:
    """arXiv 2503.14286: positives weigh 1, negatives the ratio clipped to [0, 1]. Own ones have ratio 1."""
    config = replace(SHARED, num_generations=2, external_weight="topr")
    rewards_NBG = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    for log_ratio, weight in ((-1.0, np.exp(-1)), (1.0, 1.0)):
        log_ratio_NBG = np.array([[[0.0, 0.0], [log_ratio, log_ratio]]])
        result = coefficients(config, rewards_NBG, np.ones((1, 2), bool), log_ratio_NBG)
        np.testing.assert_allclose(result * 4, [[[0.5, -0.5], [0.5, -0.5 * weight]]])


def test_on_policy_the_mean_update_is_the_gradient_of_the_chance_of_success() -> None:
    """Times 1 - 1 / G, since the mean of the group includes what is compared with it."""
    config = LinearConfig(nodes=20_000, local=4, external=0, tasks=2, questions=3, features=2, answers=3, p0=0.2)
    world = world_of(config)
    one_1FX = world.start(1, 0.0) + np.random.default_rng(1).normal(0, 0.5, (1, 5, 4))
    weights_NFX = one_1FX.repeat(config.nodes, axis=0)
    groups = act(config, world, world.table(weights_NFX), 1, 0)
    updates_NFX = update_of(config, world, weights_NFX, groups, np.ones(groups.asked_NB.shape, bool))
    true_FX = np.zeros(one_1FX.shape[1:])
    for index in np.ndindex(true_FX.shape):
        step = np.zeros_like(one_1FX)
        step[(0, *index)] = 1e-5
        up, down = (world.expected(world.table(one_1FX + sign * step)).mean() for sign in (1.0, -1.0))
        true_FX[index] = (up - down) / 2e-5 * (1 - 1 / 8)
    error_FX = updates_NFX.std(0) / np.sqrt(config.nodes)
    assert np.abs(true_FX).max() > 50 * error_FX.max()
    assert (np.abs(updates_NFX.mean(0) - true_FX) < 5 * error_FX + 1e-9).all()


def test_adam_is_that_of_torch() -> None:
    optim = Optim(LinearConfig(learning_rate=0.1), (1,))
    weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    reference = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.0)
    mine = np.zeros(1)
    for slope in (0.3, 0.0, -0.2, 0.0, 0.0):
        weight.grad = torch.tensor([-slope], dtype=torch.float64)
        reference.step()
        mine = mine + optim.step(np.array([slope]))
        np.testing.assert_allclose(mine, weight.detach().numpy(), rtol=1e-9)


def test_the_chance_of_success_at_the_start_is_exact_and_honest_reward_estimates_it() -> None:
    for p0 in (0.0005, 0.05):
        np.testing.assert_allclose(run(replace(ALONE, p0=p0, rounds=1), 1).expected_SNK[0], p0)
    ladder = (0.9, 0.1, 0.001)
    np.testing.assert_allclose(run(replace(ALONE, p0=ladder, rounds=1), 1).expected_SNK[0], [ladder * 2] * 8)
    frozen = run(replace(ALONE, p0=0.05, frozen=8, rounds=300), 1)
    assert frozen.reward_RN.mean() == pytest.approx(0.05, abs=0.003)  # 154,000 answers: 5 standard errors
    assert frozen.live_RN.mean() == pytest.approx(1 - 0.95**8 - 0.05**8, abs=0.02)
    specialists = run(replace(ALONE, speciality=2.0, rounds=1), 1).expected_SNK[0]
    for node in range(8):
        assert specialists[node].argmax() == node % 6
        np.testing.assert_allclose(np.delete(specialists[node], node % 6), 0.01)


def test_where_all_have_the_format_its_logit_stays() -> None:
    config = replace(SHARED, p0=(1 / 8,))
    world = world_of(config)
    weights_NFX = world.start(8, 0.0)
    groups = act(config, world, world.table(weights_NFX), 1, 0)
    assert groups.formatted_NBG.all()
    assert (weights_NFX[:, 0, -1] == CERTAIN).all()
    update_NFX = update_of(config, world, weights_NFX, groups, np.ones(groups.asked_NB.shape, bool))
    assert np.abs(update_NFX[..., :-1]).max() > 0.001
    assert np.abs(update_NFX[..., -1]).max() < 1e-14


# The same round: `node.Node` with `Pool` and `FairSelection`, and torch for the update


@dataclass
class Stub:
    """All of a `Node` that is not its round: tasks, scorer, policy, learner and swarm of the linear model."""

    name: str
    config: LinearConfig
    world: World
    weights_FX: torch.Tensor
    board: list[Rollout]
    chosen: list[set[tuple[str, int, int]]]
    seed_key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.tasks, self.trained, self.tried = self, [], None
        kinds: dict[str, Any] = {"adam": torch.optim.AdamW, "sgd": torch.optim.SGD}
        self.optimizer = kinds[self.config.optim]([self.weights_FX], lr=self.config.learning_rate, weight_decay=0.0)

    def draw(self, n: int, *key: object) -> list[Question]:
        ids = [QuestionId("linear", "1", "", 0, int(c)) for c in self.tried.asked_NB[int(self.name)]]
        return [Question(id, (Message("user", str(id.index)),)) for id in ids]

    def generate(self, questions: list[Question], n: int, seed: int) -> list[tuple[Completion, ...]]:
        mine = [array[int(self.name)] for array in self.tried.arrays]
        return [
            tuple(
                Completion((Part(f"{a} {int(f)}"),), logprobs=(float(p),))
                for a, f, p in zip(answers, formats, logps, strict=True)
            )
            for answers, formats, logps in zip(*mine[1:4], strict=True)
        ]

    def share(self, rollouts: list[Rollout]) -> None:
        self.board += rollouts

    def receive(self) -> list[Scored]:
        newest = max(rollout.round for rollout in self.board)
        return self.score([r for r in self.board if r.round == newest and r.node != self.name])

    def score(self, rollouts: list[Rollout | Scored]) -> list[Scored]:
        def reward(rollout: Rollout, completion: Completion) -> float:
            return float(completion.text == f"{self.world.key_C[rollout.question.index]} 1")

        question = Question(QuestionId("linear", "1", "", 0, 0), ())
        return [
            r if isinstance(r, Scored) else Scored(r, question, tuple(reward(r, c) for c in r.completions))
            for r in rollouts
        ]

    def to_send(self, local: list[Scored]) -> list[Rollout]:
        return [scored.rollout for scored in local]

    def on_update(self, result: UpdateResult) -> None:
        pass

    def choose(self, local: list[Scored], pool: Pool, I: int, J: int, seed: int) -> list[Scored]:
        """What the linear model chose, which must be a choice that `FairSelection` could have made."""
        chosen, candidates, n = self.chosen.pop(0), pool.candidates(), J
        drawn = [s for s in candidates if s.live and (s.rollout.node, s.rollout.round, s.rollout.slot) in chosen]
        assert len(drawn) == len(chosen) == len(FairSelection().choose_of_peers(candidates, n, seed))
        pool.remove(drawn)
        return local[:I] + [scored.as_peer() for scored in drawn]

    def update(self, scored: list[Scored], seed: int) -> UpdateResult:
        weight = Average.constant.weights([1] * sum(len(s.rewards) for s in scored), 1)[0]
        features = torch.tensor(self.world.features_CF)
        loss = torch.zeros((), dtype=torch.float64)
        for s in scored:
            logits = features[s.rollout.question.index] @ self.weights_FX
            for completion, advantage in zip(s.rollout.completions, advantages([s.rewards], "none")[0], strict=True):
                answer, formatted = map(int, completion.text.split())
                logp = logits[:-1].log_softmax(0)[answer] + logits[-1:].mul(2 * formatted - 1).sigmoid().log()
                behind = np.exp(min(0.0, logp.item() - completion.logprobs[0]))
                truncated = self.config.external_weight == "topr" and s.rollout.node != self.name and advantage < 0
                tensor = torch.tensor([advantage * (behind if truncated else 1.0)])
                tokens = Tokens(logp[None], logp[None].detach(), tensor, torch.zeros(1, dtype=torch.long))
                loss = loss + weight * DrGRPO().token_losses(tokens).loss_T.sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.trained.append(np.mean([s.rewards for s in scored]))
        return UpdateResult()


@pytest.mark.parametrize(("optim", "weight"), [("adam", "none"), ("sgd", "topr")])
def test_a_run_is_that_of_nodes(optim: str, weight: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = LinearConfig(nodes=4, local=2, external=3, num_generations=4, rounds=12, max_age=2, tasks=2, questions=4)
    config = replace(config, answers=4, p0=0.03, optim=optim, external_weight=weight)  # type: ignore[arg-type]
    config = replace(config, learning_rate=0.1 if optim == "adam" else 10.0)
    chosen: list[list[set[tuple[str, int, int]]]] = [[] for _ in range(4)]
    sample = LinearPool.sample

    def recorded(pool: LinearPool, n: int, rng: np.random.Generator) -> np.ndarray:
        places_NJ = sample(pool, n, rng)
        now = len(chosen[0])  # rounds of nodes begin at 1, and place p was filled in the last one that fits
        for node, places in enumerate(places_NJ):
            made = [(int(p), now - (now - p // 8) % 3 + 1) for p in places if p >= 0]
            chosen[node].append({(str(p % 8 // 2), round, p % 2) for p, round in made})
        return places_NJ

    monkeypatch.setattr(LinearPool, "sample", recorded)
    result = run(config, 1)
    old = [round - made for sets in chosen for round, s in enumerate(sets, 1) for _, made, _ in s]
    assert set(old) == {0, 1, 2}  # some were kept for later, up to the greatest age

    world, board = world_of(config), []
    start_NFX = world.start(4, 0.0)
    weights = [torch.tensor(start_FX, requires_grad=True) for start_FX in start_NFX]
    stubs: list[Any] = [Stub(str(n), config, world, weights[n], board, chosen[n]) for n in range(4)]
    nodes = [Node(stub.name, 1, stub, stub, stub, stub, stub, stub, Pool(256, 2), 2, 3, 4) for stub in stubs]
    for round in range(config.rounds):
        weights_NFX = np.stack([stub.weights_FX.detach().numpy() for stub in stubs])
        np.testing.assert_allclose(world.expected(world.table(weights_NFX)), result.expected_SNK[round], rtol=1e-7)
        tried = act(config, world, world.table(weights_NFX), 1, round)
        for stub, node in zip(stubs, nodes, strict=True):
            stub.tried = tried
            node.act()
        lessons = [node.learn() for node in nodes]
        assert [len(lesson.from_peers) for lesson in lessons] == result.external_RN[round].tolist()
        np.testing.assert_allclose([stub.trained[-1] for stub in stubs], result.trained_RN[round])
    assert result.expected_SNK[-1].mean() > 2 * 0.03
    assert result.external_RN.min() == 0  # short of externals at times
    assert result.external_RN.max() == 3


def made(live_NE: np.ndarray) -> Groups:
    zeros_NEG = np.zeros((*live_NE.shape, 2))
    rewards_NEG = zeros_NEG.copy()
    rewards_NEG[..., 0] = live_NE
    ids_NE = np.arange(live_NE.size).reshape(live_NE.shape)
    return Groups(ids_NE, zeros_NEG.astype(np.int64), zeros_NEG > 0, zeros_NEG, rewards_NEG)


def entry(place: int, live: bool) -> Scored:
    """Each of another maker, as in a swarm that is much larger than a pool."""
    id = QuestionId("linear", "1", "", 0, place)
    return Scored(Rollout(id, "", (), str(place), 0), Question(id, ()), (float(live), 0.0))


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("size", "max_age"), [(256, 3), (7, 3), (256, 0)])
def test_pools_hold_what_the_pool_of_a_node_holds(size: int, max_age: int, own: bool) -> None:
    """Age, size, dead rollouts that take up room, and nothing twice."""
    rng = np.random.default_rng(1)
    pool = LinearPool(3, 2, size, max_age, own)
    real = [Pool(size, max_age) for _ in range(3)]
    used: list[list[tuple[int, int]]] = [[], [], []]
    for round in range(30):
        live_NE = rng.random((3, 2)) < 0.5
        pool.add(made(live_NE), round, rng)
        first = round % pool.window * 6
        for node in range(3):
            places = [first + m for m in range(6) if (m // 2 == node) == own]
            places.sort(key=lambda place: pool._arrived_NP[node, place])
            real[node].add([entry(place, live_NE.flat[place - first]) for place in places], round)
            live = {s.rollout.question.index for s in real[node].candidates() if s.live}
            assert live == set(pool.candidates(node).tolist())
        places_NJ = pool.sample(1, rng)
        for node in range(3):
            drawn = set(places_NJ[node][places_NJ[node] >= 0].tolist())
            assert len(drawn) == len(FairSelection().choose_of_peers(real[node].candidates(), 1, 0))
            real[node].remove([s for s in real[node].candidates() if s.rollout.question.index in drawn])
            used[node] += [(round, place) for place in drawn]
    assert min(map(len, used)) > 10


def test_crowded_pools_sample_as_the_pool_of_a_node_does() -> None:
    """One round fills every pool: the number and the choice, each against `Pool` and `FairSelection`, 3,000 draws."""
    live_NE = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]], bool)
    rng, counts, expected = np.random.default_rng(1), np.zeros((3, 12)), np.zeros((3, 12))
    for draw in range(3000):
        pool = LinearPool(3, 4, 5, 4)
        assert pool.crowded
        pool.add(made(live_NE), draw, rng)
        for node, places in enumerate(pool.sample(2, rng)):
            found = places[places >= 0]
            assert len(np.unique(found)) == len(found)
            counts[node, found] += 1
            real, others = Pool(5, 4), [m for m in range(12) if m // 4 != node]
            real.add([entry(m, live_NE.flat[m]) for m in rng.permutation(others).tolist()], draw)
            for s in FairSelection().choose_of_peers(real.candidates(), 2, draw):
                expected[node, s.rollout.question.index] += 1
    assert (counts[:, ~live_NE.reshape(-1)] == 0).all()
    assert counts[0, 0] == counts[0, 1] == counts[1, 4] == 0  # nobody's own
    assert np.abs(counts - expected).max() < 200  # 5 standard deviations of a difference are below 195


def test_replay_gives_ones_own_of_earlier_rounds() -> None:
    result = run(replace(SHARED, p0=(1 / 8,), source="replay", rounds=10), 1)
    assert (result.external_RN[0] == 0).all()
    assert result.external_RN[3:].mean() > 1


# The same in every arm


def test_a_run_is_a_function_of_configuration_and_seed() -> None:
    one, other = run(SHARED, 3), run(SHARED, 3)
    for mine, theirs in zip(astuple(one), astuple(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not np.array_equal(run(SHARED, 4).reward_RN, one.reward_RN)


@pytest.mark.parametrize("source", ["swarm", "self"])
def test_without_sharing_no_node_changes_another(source: str) -> None:
    config = replace(SHARED, external=0) if source == "swarm" else replace(SHARED, source="self")
    all_learn, one_learns = run(replace(config, p0=0.05), 1), run(replace(config, p0=0.05, frozen=7), 1)
    np.testing.assert_array_equal(all_learn.expected_SNK[:, 0], one_learns.expected_SNK[:, 0])
    assert (one_learns.expected_SNK[:, 1:] == one_learns.expected_SNK[0, 1:]).all()


def test_arms_of_one_seed_share_questions_and_chance_in_the_slots_they_share() -> None:
    _, _, eight = uneven(ALONE)
    for arm in (SHARED, replace(SHARED, source="self")):
        for long, short in zip(eight.slots(0, 4).arrays, uneven(arm)[2].slots(0, 4).arrays, strict=True):
            np.testing.assert_array_equal(long, short)
    _, _, equal = uneven(replace(ALONE, same_questions=True))
    assert (equal.asked_NB == equal.asked_NB[:1]).all()
    assert not (eight.asked_NB == eight.asked_NB[:1]).all()


def test_generation_is_counted() -> None:
    assert (ALONE.generated, SHARED.generated, replace(SHARED, source="self").generated) == (64, 32, 8 * 32)


WRONG: list[dict[str, Any]] = [
    {"p0": 0.2},
    {"p0": 0.0},
    {"p0": ()},
    {"p0": (0.5, 1.0)},
    {"local": 0},
    {"num_generations": 1},
    {"nodes": 33, "source": "self"},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        LinearConfig(**wrong)


# Trends (means over 8 seeds; in brackets what ten seeds gave)


@pytest.mark.slow
def test_sharing_beats_isolation_where_success_is_sparse() -> None:
    """Both by exact pass@1 and by honest reward [about 2.9 at 0.005], and hardly where it is not [1.1 at 0.05]."""
    for p0, least in ((0.005, 1.5), (0.05, 1.02)):
        shared = [run(replace(SHARED, p0=p0), seed) for seed in SEEDS]
        alone = [run(replace(ALONE, p0=p0), seed) for seed in SEEDS]
        gains = [one.area / other.area for one, other in zip(shared, alone, strict=True)]
        assert min(gains) > 1
        assert np.mean(gains) > least
        assert p0 < 0.05 or np.mean(gains) < 1.3
        assert np.mean([r.honest for r in shared]) > np.mean([r.honest for r in alone])


def test_a_homogeneous_swarm_equals_self_filtering_at_equal_generation() -> None:
    """[1.00 +- 0.03, and single pairs of seeds 0.89 to 1.19]: the mean of 8 has a standard error of 0.03."""
    config = replace(SHARED, p0=0.005)
    assert np.mean(areas(config) / areas(replace(config, source="self"))) == pytest.approx(1, abs=0.1)


@pytest.mark.slow
def test_specialists_gain_more_from_each_other_than_from_self_filtering() -> None:
    """[1.12, least 1.07] where the answers to others' tasks are hard to guess, and long enough to have learned one's
    own; early, others' attempts at it only take room: see docs/studies/linear."""
    gains = areas(SPECIALISTS) / areas(replace(SPECIALISTS, source="self"))
    assert (gains > 1).sum() >= 7
    assert gains.mean() > 1.04


@pytest.mark.parametrize(("local", "same"), [(4, False), (2, True)])
def test_null_the_filter_alone_raises_reward_over_the_training_set(local: int, same: bool) -> None:
    """Frozen, identical policies: [1.38 to 2.26 over nine seeds]. The paper's ratios are 1.52, 1.95 and 1.68."""
    ladder = tuple(0.4 / 3**k for k in range(6))
    null = LinearConfig(local=local, external=8 - local, p0=ladder, frozen=8, rounds=300, max_age=0)
    result = run(replace(null, same_questions=same), 1)
    assert 1.2 < result.trained_RN.mean() / result.reward_RN.mean() < 2.6
    assert (result.expected_SNK == result.expected_SNK[0]).all()
    alone = run(replace(null, local=8, external=0), 1)
    np.testing.assert_array_equal(alone.trained_RN, alone.reward_RN)
    assert result.reward_RN.mean() == pytest.approx(alone.reward_RN.mean(), abs=0.03)  # the honest figure does not


@pytest.mark.slow
def test_shuffled_rewards_give_no_gain() -> None:
    config = replace(SHARED, p0=0.05)
    assert np.mean([run(config, seed).expected_SNK[-1].mean() for seed in SEEDS]) > 0.1
    shuffled = [run(replace(config, shuffle="all"), seed).expected_SNK[-1].mean() for seed in SEEDS]
    assert np.mean(shuffled) < 0.06
    assert areas(replace(SHARED, shuffle="external")).mean() < areas(ALONE).mean()


def test_shuffling_changes_places_within_external_rollouts_or_all() -> None:
    rewards_NBG = np.broadcast_to(np.arange(8.0), (8, 8, 8))
    for shuffle, first in (("external", 4), ("all", 0)):
        config = replace(SHARED, shuffle=shuffle)  # type: ignore[arg-type]
        result_NBG = reshuffled(config, rewards_NBG, 1, 0)
        np.testing.assert_array_equal(result_NBG[:, :first], rewards_NBG[:, :first])
        np.testing.assert_array_equal(np.sort(result_NBG, axis=2), rewards_NBG)
        assert ((result_NBG != rewards_NBG).any(2)).mean(0)[first:].min() > 0.9
