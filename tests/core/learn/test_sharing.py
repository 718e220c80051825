"""Ways of sharing in examples/: their numbers against a calculation by hand, in float64."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import agreement
import hacpo
import msgspec
import numpy as np
import prioritised
import pytest
import torch
from ability import Able, Rescue
from asking import Asks
from fakes import make_node, question, scored
from ftis import FTIS
from tiny import gradients, limit, make_policy, make_scored

import shoal
from shoal.config.settings import Config
from shoal.learn.learner import GRPOLearner
from shoal.learn.losses.base import Average
from shoal.learn.prepare import make_groups
from shoal.learn.weights.base import PeerTokens
from shoal.protocols import Asker
from shoal.rollout import Scored
from shoal.selection.pool import Pool

EOS = 1
F64 = torch.float64


def pool_of(*peers: Scored) -> Pool:
    pool = Pool()
    pool.add(peers, round=1)
    return pool


def tokens(gaps: Sequence[float], lengths: Sequence[int], advantages: Sequence[float]) -> PeerTokens:
    """Completions with a gap (nats a token), a length and an advantage each."""
    sequences_T = torch.arange(len(gaps)).repeat_interleave(torch.tensor(lengths))
    gap_T, advantages_T = (torch.tensor(values, dtype=F64)[sequences_T] for values in (gaps, advantages))
    return PeerTokens(-gap_T, gap_T, advantages_T, sequences_T)


def choose(selection: Any, local: Sequence[Scored], *peers: Scored, J: int = 4, seed: int = 0) -> list[Scored]:
    return list(selection.choose(local, pool_of(*peers), 4, J, seed))


# HACPO


def test_baseline_and_weight_of_hacpo_know_the_abilities() -> None:
    local = [scored((1.0, 0.0, 0.0, 0.0), slot=slot) for slot in range(4)]  # P_k = 0.25
    live = scored((1.0, 1.0, 0.0, 0.0), 2, "bob")
    dead = scored((1.0, 1.0, 1.0, 1.0), 3, "bob", slot=1)  # it teaches nobody and counts for P_j = 0.75
    [taught] = [one for one in choose(hacpo.Hacpo(Config()), local, live, dead) if one.from_peer]
    assert taught.weight == pytest.approx(3.0)
    assert taught.baseline == pytest.approx(0.5 / 3)
    policy = make_policy(double=True)
    words = ["4", "5", "6", "7"]
    peer = msgspec.structs.replace(make_scored("2 + 2 =", words, taught.rewards), from_peer=True)
    peer = msgspec.structs.replace(peer, baseline=taught.baseline, weight=taught.weight)
    [group] = make_groups([peer], policy, Config().learner, 0.0, Average.completion, 0)
    assert group.advantages == pytest.approx([3 * (1 - 0.5 / 3)] * 2 + [3 * (0 - 0.5 / 3)] * 2)
    assert group.size == pytest.approx(sum(map(abs, group.advantages)))


def test_a_baseline_above_every_reward_is_the_plain_mean_and_ratios_are_bounded() -> None:
    local = [scored((1.0, 1.0), slot=slot) for slot in range(4)]
    weak = [scored((0.0, 0.0), index, "bob", slot=index) for index in range(2, 11)]  # with the live one P_j = 0.05
    batch = choose(hacpo.Hacpo(Config()), local, scored((1.0, 0.0), 1, "bob"), *weak)
    [taught] = [one for one in batch if one.from_peer]
    assert (taught.weight, taught.baseline) == (0.1, 0.5)


def test_a_rollout_that_stays_in_the_pool_counts_once() -> None:
    selection = hacpo.Hacpo(Config())
    pool = pool_of(scored((1.0, 0.0), 2, "bob"), scored((1.0, 1.0), 3, "bob", slot=1))
    for _ in range(3):
        selection.choose([scored((1.0, 0.0))], pool, 1, 0, 0)
    assert selection.recent["bob"] == [0.5, 1.0]


def test_likelihood_is_raised_to_a_power_and_clipped_from_below() -> None:
    weight = hacpo.Likely(alpha=1.0, delta=0.2, step=0.025)
    read = tokens([-0.5, 0.1, 0.2, 0.3], [1, 2, 1, 3], [1, -1, 1, 1])
    s = math.exp(-0.1), math.exp(-0.2)
    expected = [1, s[0] ** 2, s[0] ** 2, s[1] ** 2, 0, 0, 0]  # exp(-0.3) = 0.74 < 0.8
    assert weight.weights(read).tolist() == pytest.approx(expected, abs=1e-15)
    weight.steps = 1  # 0.825 > exp(-0.2) = 0.819
    assert weight.weights(read).tolist() == pytest.approx([1, s[0] ** 2, s[0] ** 2, 0, 0, 0, 0], abs=1e-15)


def test_each_step_of_an_update_tightens_the_clip() -> None:
    config = Config.model_validate(
        {"learner": {"num_iterations": 3, "learning_rate": 1e-3}, "peers": {"weight": "hacpo:Likely"}}
    )
    learner = hacpo.learner(make_policy(), config)
    learner.update([make_scored("2 + 2 =", [[5, EOS], [7, EOS]], [1, 0])])
    assert learner.peer_weight.steps == 3


# F-TIS


def test_importance_is_truncated_and_unlikely_failures_count_nothing() -> None:
    read = tokens([-1.0, 0.5, 0.5, 0.5], [2, 2, 2, 12], [-1, -1, 1, -1])
    expected = [1.0] * 2 + [math.exp(-0.5)] * 4 + [0.0] * 12  # 12 tokens of 0.5 nats are 6, over 5
    assert FTIS(g=5).weights(read).tolist() == pytest.approx(expected, abs=1e-15)
    assert FTIS(g=50).weights(read)[-1].item() == pytest.approx(math.exp(-0.5), abs=1e-15)


# Prioritised replay


def test_answers_come_back_by_the_root_of_their_advantage() -> None:
    selection = prioritised.Prioritised(Config())
    selection.keep([scored((1.0, 0.0, 0.0, 0.0), 1)])  # |A| is 0.75 once, 0.25 three times
    firsts = Counter(selection.draw(1, seed)[0].rewards for seed in range(4000))
    chance = math.sqrt(0.75) / (math.sqrt(0.75) + 3 * math.sqrt(0.25))
    assert abs(firsts[1.0,] / 4000 - chance) < 5 * math.sqrt(chance * (1 - chance) / 4000)


def test_a_replayed_answer_keeps_its_advantage_and_goes_after_ten_rounds() -> None:
    selection = prioritised.Prioritised(Config())
    local = [scored((1.0, 0.0, 0.0, 0.0), 1)]
    assert choose(selection, local) == local  # nothing to replay yet
    batch = choose(selection, local, J=1)
    assert batch[0] is local[0]
    assert sum(len(one.rewards) for one in batch[1:]) == 4
    assert all(one.baseline == 0.25 and one.from_peer for one in batch[1:])
    for _ in range(11):
        batch = choose(selection, [scored((0.0, 0.0, 0.0, 0.0), 2)], J=1)
    assert len(batch) == 1
    assert not selection.kept


# Ability


def test_a_less_able_maker_counts_less_at_that_task() -> None:
    selection = Able(Config())
    local = [scored((1.0, 1.0), task="say"), scored((0.0, 0.0), task="sum", slot=1)]
    peers = scored((1.0, 0.0), 2, "bob", task="say"), scored((1.0, 0.0), 3, "bob", task="sum", slot=1)
    weights = {s.question.id.task: s.weight for s in choose(selection, local, *peers) if s.from_peer}
    # (0.5 x 1 + 0.5) / 2 = 0.5 of bob; (1 + 0.5) / 2 = 0.75 and 0.25 of this node
    assert weights == {"say": pytest.approx(0.5 / 0.75), "sum": 1.0}


def test_peers_help_where_a_node_seldom_succeeds_and_nowhere_else() -> None:
    local = [scored((1.0, 0.0), task="say", slot=slot) for slot in range(3)]
    local.append(scored((0.0, 0.0), task="sum", slot=3))
    local.append(scored((0.0, 0.0), task="sum", slot=4))  # 0.5 / 3
    peers = scored((1.0, 0.0), 2, "bob", task="say"), scored((1.0, 0.0), 3, "bob", task="sum", slot=1)
    assert {s.question.id.task for s in choose(Rescue(Config()), local, *peers) if s.from_peer} == {"sum"}


def test_makers_who_come_by_the_thousand_are_forgotten() -> None:
    selection = Able(Config())
    pool = Pool(5000)
    pool.add([scored((1.0, 0.0), 1, f"maker {n}") for n in range(1000)], 1)
    selection.choose([scored((1.0, 0.0))], pool, 1, 1, 0)
    assert len(selection.rates) == 257
    assert "maker 999" in selection.rates


# Asking


def test_a_node_asks_what_it_can_and_others_cannot() -> None:
    selection = Asks(Config())
    local = [scored((1.0, 1.0), task="say", slot=slot) for slot in range(3)]
    selection.hear(local, pool_of(*(scored((0.0, 0.0), index, "bob", task="say", slot=index) for index in range(3))))
    asked = question(1, "say")
    p, q = 3.5 / 4, (3.5 / 4 + 0.5 / 4) / 2
    assert selection.worth((asked.id.task, asked.id.config)) == pytest.approx(p * (1 - q) + 0.01)
    questions = [question(n, task, seed=n) for n, task in enumerate(["say", "sum"] * 200)]
    chosen = selection.to_ask(questions, 100)
    assert [one.id for one in chosen] == [one.id for one in questions]
    assert sum(bool(one.prompt) for one in chosen) == 100
    assert chosen == selection.to_ask(questions, 100)
    firsts = Counter[str]()
    for seed in range(1, 2001):
        pair = [question(1, "say", seed=seed), question(1, "sum", seed=-seed)]
        firsts.update(one.id.task for one in selection.to_ask(pair, 1) if one.prompt)
    chance = (p * (1 - q) + 0.01) / (p * (1 - q) + 0.01 + 0.5 * 0.5 + 0.01)
    assert abs(firsts["say"] / 2000 - chance) < 0.06


def test_a_node_answers_what_its_selection_asks_and_keeps_the_slots() -> None:
    class Last:
        """Asks the last of what is drawn."""

        drawn = 3

        def to_ask(self, questions: Sequence[shoal.Question], n: int) -> list[shoal.Question]:
            return [msgspec.structs.replace(q, prompt=()) for q in questions[:-n]] + list(questions[-n:])

        def to_send(self, local: Sequence[Scored]) -> list[shoal.Rollout]:
            return [one.rollout for one in local]

    node = make_node(selection=Last())
    node.act()
    assert [one.rollout.slot for one in node.local] == [4, 5]
    drawn = node.tasks.draw(6, *node.swarm.seed_key, 1)
    assert [one.question for one in node.local] == drawn[4:]
    assert not isinstance(make_node().selection, Asker)


# Gradients


def test_a_maker_counts_by_the_cosine_of_its_gradient_with_own_ones() -> None:
    own = [make_scored("2 + 2 =", [[5, 9, EOS], [7, EOS]], [1, 0])]
    peer = make_scored("10 - 3 =", [[5, 9, EOS], [8, EOS]], [0, 1])
    peers = [msgspec.structs.replace(peer, from_peer=True, rollout=msgspec.structs.replace(peer.rollout, node="bob"))]
    settings = {"learner": {"learning_rate": 1e-3}, "peers": {"weight": "none(limit=0)"}}

    def found(kind: Any, batch: Sequence[Scored], **state: float) -> dict[str, torch.Tensor]:
        policy = make_policy(double=True)
        config = Config.model_validate(settings)
        plain = kind is GRPOLearner
        learner: Any = GRPOLearner(policy, config.learner, config.peers) if plain else kind(policy, config)
        if state:
            learner.agreed = dict(state)
        limit(learner, max_grad_norm=1e9)
        kept: dict[str, torch.Tensor] = {}
        learner.optimizer.register_step_pre_hook(lambda *_: kept.update(gradients(policy.lm.model)))
        learner.update(batch)
        return kept

    # the averages of an update count its completions, so each part is made beside the other, without advantage
    still_own, still_peer = (
        [msgspec.structs.replace(one, rewards=(0.0, 0.0)) for one in part] for part in (own, peers)
    )
    a, b = found(GRPOLearner, own + still_peer), found(GRPOLearner, still_own + peers)
    near = float(sum((a[n] * b[n]).sum() for n in a) / math.sqrt(sum((x**2).sum() for x in a.values())) / math.sqrt(
        sum((x**2).sum() for x in b.values())
    ))  # fmt: skip
    for before in (-0.05, -0.5):
        mean = 0.9 * before + 0.1 * near
        share = min(1.0, max(0.0, 1 + mean / 0.1))
        whole = found(agreement.Agreement, own + peers, bob=before)
        for name, part in whole.items():
            assert torch.allclose(part, a[name] + share * b[name], rtol=1e-6, atol=1e-9), name


def test_what_points_along_the_last_gradient_is_cut_to_the_bound() -> None:
    rng = np.random.default_rng(0)
    last, noise = rng.normal(size=20), rng.normal(size=20)
    new = last + 0.5 * noise
    parts = lambda v: [torch.tensor(v[:7]), torch.tensor(v[7:])]  # noqa: E731
    cut = torch.cat(agreement.aligned(parts(new), parts(last))).numpy()
    assert cut @ last / np.linalg.norm(cut) / np.linalg.norm(last) == pytest.approx(0.3, abs=1e-12)
    across = new - (new @ last) / (last @ last) * last
    assert cut - (cut @ last) / (last @ last) * last == pytest.approx(across, abs=1e-12)


def test_the_cosine_of_consecutive_gradients_is_reported_and_bounded(tmp_path: Path) -> None:
    learner = agreement.gac(make_policy(), Config.model_validate({"learner": {"learning_rate": 1e-6}}))
    batch = [make_scored("2 + 2 =", [[5, 9, EOS], [7, EOS]], [1, 0])]
    assert "gac/cosine" not in learner.update(batch).metrics
    learner.save(tmp_path)
    assert learner.update(batch).metrics["gac/cosine"] == pytest.approx(1, abs=1e-3)  # the same data, again
    again = agreement.gac(make_policy(), Config.model_validate({"learner": {"learning_rate": 1e-6}}))
    again.load(tmp_path)
    assert again.update(batch).metrics["gac/cosine"] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("kind", [hacpo.Hacpo, prioritised.Prioritised, Able, Asks])
def test_a_checkpoint_keeps_what_a_selection_knows(kind: Any, tmp_path: Path) -> None:
    first, second = kind(Config()), kind(Config())
    local = [scored((1.0, 0.0), index, slot=index) for index in range(4)]
    choose(first, local, *(scored((1.0, 0.0), index, "bob", slot=index) for index in range(5, 12)))
    first.save(tmp_path)
    second.load(tmp_path)
    later = [scored((1.0, 0.0), index, "bob", slot=index) for index in range(20, 26)]
    assert choose(first, local, *later, seed=3) == choose(second, local, *later, seed=3)
