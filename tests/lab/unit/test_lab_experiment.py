"""Controls: each changes the one thing that it says, in runs of real nodes."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
from fakes import Exact, Sayings, join, make_node, question, rollout, scored

from shoal.config.load import make_config
from shoal.errors import UserError
from shoal.rewards import Combined, RewardVerifier
from shoal.rewards.combined import Entry
from shoal.rewards.reward import Verified
from shoal.rewards.scorer import Scorer
from shoal.runs.build import Nodes
from shoal.runs.folder import RunFolder, read_metrics
from shoal.runs.run import Run
from shoal.sandbox.verifier import Verifier
from shoal.transports.memory import MemorySwarm
from shoal_lab.cells import Silent
from shoal_lab.config import ExperimentConfig, LabConfig, make_lab_config
from shoal_lab.experiment import Controlled, Experiment, ShufflingScorer, shuffled


def config(**experiment: Any) -> LabConfig:
    settings = {
        "rounds": 3,
        "threads": 1,
        "checkpoint_every": 0,
        "round": {"nodes": 3, "local": 3, "peers": 2, "workers": 0},
        "evaluation": {"every": 0, "questions": 1, "samples": 1},
        "experiment": experiment,
    }
    return LabConfig.model_validate(settings)


@contextmanager
def running(folder: Path, settings: LabConfig) -> Iterator[Experiment]:
    with (
        RunFolder.create(folder, settings.to_toml()) as kept,
        Verifier(settings.tasks) as verifier,
        closing(Experiment(settings, None, verifier)) as nodes,
    ):
        Run(nodes, kept, Silent(lambda round: None)).go(threading.Event())
        yield nodes


def table(folder: Path, name: str) -> Any:
    return pandas.read_parquet(folder / f"{name}.parquet")


@pytest.mark.slow
def test_without_controls_an_experiment_is_a_run(tmp_path: Path) -> None:
    with running(tmp_path / "experiment", config()):
        pass
    with (
        RunFolder.create(tmp_path / "run", "") as kept,
        closing(Nodes(config())) as nodes,
    ):
        Run(nodes, kept, Silent(lambda round: None)).go(threading.Event())
    one, other = (
        [{k: v for k, v in row.items() if k != "time" and "seconds" not in k} for row in read_metrics(tmp_path / name)]
        for name in ("experiment", "run")
    )
    assert one == other


def test_an_ordinary_run_has_no_controls(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no setting 'experiment'"):
        make_config({"experiment": {"frozen": 1}}, "a file")
    again = tomllib.loads(config().to_toml())
    assert make_config(again, "a run without controls").rounds == 3
    controlled = tomllib.loads(config(frozen=1).to_toml())
    assert make_lab_config(controlled, "one with").experiment.frozen == 1


@pytest.mark.slow
def test_the_same_questions_on_every_node(tmp_path: Path) -> None:
    asked = {}
    for same in (False, True):
        with running(tmp_path / str(same), config(same_questions=same)):
            pass
        rows = table(tmp_path / str(same), "rollouts")
        asked[same] = [set(rows[rows.node == node].prompt) for node in ("node-1", "node-2", "node-3")]
    assert asked[True][0] == asked[True][1] == asked[True][2]
    assert asked[False][0] != asked[False][1]


@pytest.mark.slow
def test_frozen_nodes_share_and_never_learn(tmp_path: Path) -> None:
    with running(tmp_path / "run", config(frozen=2)) as run:
        assert [node.learner is None for node in run.nodes] == [False, True, True]
    assert set(table(tmp_path / "run", "learned").node) == {"node-1"}
    assert {row["rollouts/shared"] for row in read_metrics(tmp_path / "run") if row["round"]} == {3}
    with (
        pytest.raises(UserError, match=r"4 nodes are to be frozen.* has only 3"),
        running(tmp_path / "other", config(frozen=4)),
    ):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["planted", "identities"])
def test_adversaries_take_the_place_of_nodes(tmp_path: Path, attack: str) -> None:
    settings = config(adversaries=1, attack=attack)
    settings.tasks.suite = "tagged"
    settings.rounds = 2
    with running(tmp_path / "run", settings) as run:
        assert run.adversaries == ["node-3"]
        assert run.nodes[2].learner is None
    rows = table(tmp_path / "run", "rollouts")
    hostile = rows[~rows.node.isin(["node-1", "node-2"])]
    assert hostile.reward.mean() == 0.5  # half of each group is right
    makers = set(table(tmp_path / "run", "learned").query("peer").maker)
    assert makers - {"node-1", "node-2"}, "the honest learn from them"
    assert ("node-3" in makers) == (attack == "planted")


def test_shuffled_rewards_are_the_same_rewards_and_the_same_each_time() -> None:
    given = [scored((1.0, 0.0, 0.0, 0.5), index=index, slot=index) for index in range(30)]
    orders = {shuffled(each, 1).rewards for each in given}
    assert len(orders) > 5
    assert {tuple(sorted(order)) for order in orders} == {(0.0, 0.0, 0.5, 1.0)}
    assert shuffled(given[0], 1) == shuffled(given[0], 1)


def test_rewards_of_several_kinds_are_shuffled_as_the_verifiers_are() -> None:
    length = SimpleNamespace(score=lambda items: [[len(text) / 10 for text in texts] for _, texts in items])
    entries = [Entry("right", Verified(Exact("bbb")), gate=True), Entry("long", length)]  # type: ignore[arg-type]
    plain = Scorer(Sayings(), RewardVerifier(Sayings(), Combined(entries)))
    given = [rollout(question(number), ("a", "bbb", "cc", "dddd"), slot=number) for number in range(1, 5)]
    assert {scored.rewards for scored in plain.score(given)} == {(0.0, 0.3, 0.0, 0.0)}
    orders = {scored.rewards for scored in ShufflingScorer(plain.tasks, plain.verifier, 1, "").score(given)}
    assert len(orders) > 1
    assert {tuple(sorted(rewards)) for rewards in orders} == {(0.0, 0.0, 0.0, 0.3)}


def controlled(swarm: MemorySwarm, **experiment: Any) -> Controlled:
    return Controlled(swarm.join("ada"), ExperimentConfig(**experiment), 7)


def test_replay_gives_back_a_round_s_own_rollouts_a_round_later_and_nobody_else_s() -> None:
    swarm = MemorySwarm(7)
    link, other = controlled(swarm, source="replay"), make_node("bob", swarm)
    rounds = []
    node = make_node("ada", swarm)
    node.swarm = link
    for _ in range(3):
        other.act()
        node.act()
        rounds.append({(r.node, r.round) for r in link.receive()})
    assert rounds == [set(), {("ada", 1)}, {("ada", 2)}]


def test_replay_goes_on_after_a_kill(tmp_path: Path) -> None:
    swarm = MemorySwarm(7)
    link = controlled(swarm, source="replay")
    node = make_node("ada", swarm)
    node.swarm = link
    node.act()
    link.save(tmp_path)
    again = controlled(MemorySwarm(7), source="replay")
    again.load(tmp_path)
    again.share([])
    assert again.receive() == [one.rollout.public() for one in node.local]


def test_who_is_blocked_reaches_nobody() -> None:
    swarm = MemorySwarm(7)
    link, listener = controlled(swarm, blocked=["bob"]), join(swarm)
    for name in ("bob", "cleo"):
        make_node(name, swarm).act()
    assert {r.node for r in link.receive()} == {"cleo"}
    assert {r.node for r in listener.receive()} == {"bob", "cleo"}
