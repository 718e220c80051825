"""Roles: some nodes set problems, and the others solve them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas
import pytest

from shoal.errors import UserError
from shoal.runs.tables import ROLLOUTS
from shoal.sandbox.verifier import Verifier
from shoal_extras.programs.propose import PROPOSE
from shoal_lab.config import LabConfig
from shoal_lab.contributors import Person
from shoal_lab.experiment import Experiment
from shoal_lab.proposers import form, proposal_measures
from shoal_lab.results import counted_nodes

pytest.importorskip("pydantic_monty")
BOTH = [{"name": PROPOSE}, {"name": "infer"}]


def config(stages: list[str], tasks: list[dict[str, Any]] = BOTH, **experiment: Any) -> LabConfig:
    settings = {
        "threads": 1,
        "tasks": {"sources": tasks, "stages": stages},
        "policy": {"num_generations": 2, "max_completion_length": 4},
        "round": {"nodes": 3, "local": 3, "peers": 0, "workers": 0},
        "evaluation": {"questions": 1, "samples": 1},
        "experiment": {"proposers": 1} | experiment,
    }
    return LabConfig.model_validate(settings)


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier(config([]).tasks) as verifier:
        yield verifier


def asked(nodes: Experiment, rounds: int) -> list[list[list[str]]]:
    """What each node was asked in each round: the tasks of its questions. Whoever proposes is always right."""
    proposer = nodes.nodes[-1]
    proposer.policy = Person(nodes.tasks, 1.0, proposer.policy)
    found = []
    for _ in range(rounds):
        for node in nodes:
            node.act()
        found.append([[scored.question.id.task for scored in node.local] for node in nodes])
        for node in nodes:
            node.learn()
    return found


def test_one_node_sets_problems_and_the_others_solve_them(verifier: Verifier) -> None:
    with closing(Experiment(config(["solve"]), None, verifier)) as nodes:
        assert asked(nodes, 2) == [[[], [], [PROPOSE] * 3], [["solve"] * 3, ["solve"] * 3, [PROPOSE] * 3]]
        solver, proposer = nodes.nodes[0], nodes.nodes[-1]
        problems = {one.rollout.hash for one in proposer.local}
        assert all(one.question.id.quotes[0] not in problems for one in solver.local), "those of the round before"
        assert solver.scorer.refused == proposer.scorer.refused == 0, "every node makes these questions again"


def test_without_stages_the_others_answer_the_other_tasks(verifier: Verifier) -> None:
    with closing(Experiment(config([]), None, verifier)) as nodes:
        assert asked(nodes, 1) == [[["infer"] * 3, ["infer"] * 3, [PROPOSE] * 3]]


def test_problems_that_were_set_outlive_a_stop(verifier: Verifier, tmp_path: Path) -> None:
    with closing(Experiment(config(["solve"]), None, verifier)) as nodes:
        asked(nodes, 1)
        (tmp_path / "checkpoint").mkdir()
        nodes.save(tmp_path / "checkpoint")
    with closing(Experiment(config(["solve"]), tmp_path / "checkpoint", verifier)) as again:
        assert asked(again, 1)[0][0] == ["solve"] * 3


@pytest.mark.parametrize(
    ("stages", "tasks", "missing"),
    [([], [{"name": "infer"}], "the task propose"), ([], [{"name": PROPOSE}], "the stage solve")],
)
def test_a_role_needs_something_to_ask(stages: list[str], tasks: list[dict[str, Any]], missing: str) -> None:
    with pytest.raises(UserError, match=missing):
        Experiment(config(stages, tasks), None, Verifier(config([], tasks).tasks))


def test_proposers_are_not_among_the_nodes_that_count() -> None:
    assert counted_nodes(config(["solve"])) == counted_nodes(config(["solve"], frozen=1)) == ["node-1", "node-2"]
    with pytest.raises(ValueError, match="proposers"):
        config(["solve"], adversaries=1)


def test_what_proposers_set_is_measured(tmp_path: Path) -> None:
    def problem(body: str) -> str:
        return f"def f(n):\n    return {body}\nassert f(1) == 2"

    assert form(problem("n + 3")) == form(problem("n + 44")) != form(problem("n * 3"))
    said = [(1, "no", 0.0), (1, problem("n"), 1.0), (5, problem("n + 1"), 1.0), (5, problem("n + 2"), 1.0)]
    said += [(5, problem("str(n) + 'kelp'"), 1.0), (5, problem("n * 2"), 0.0), (5, "no", 0.0)]
    rows = pandas.DataFrame(said, columns=["round", "completion", "reward"]).assign(node="node-3", task=PROPOSE)
    others = rows.assign(node="node-1", task="infer", reward=1.0)
    (tmp_path / ROLLOUTS).mkdir()
    pandas.concat([rows, others]).to_parquet(tmp_path / ROLLOUTS / "from-round-000001.parquet")
    assert proposal_measures(tmp_path, ["node-3"]) == {
        "proposals/valid_first": 0.5,
        "proposals/valid": 0.6,
        "proposals/commonest": 2 / 3,
    }
    assert proposal_measures(tmp_path, ["node-2"]) == proposal_measures(tmp_path / "none", ["node-3"]) == {}
