"""Nodes without a learner, and whole runs with an endpoint among the nodes: in-process servers stand for real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import RIGHT, WRONG, Exact, Parrot, join, make_node, question, rollout
from servers import Reply, Server, chat, free_url, good, serving

from shoal.cli.main import main
from shoal.evaluation.pass_at_k import evaluate
from shoal.protocols import UpdateResult
from shoal.rollout import Completion, Question
from shoal.runs.folder import read_metrics
from shoal.runs.metrics import rollout_rows, round_metrics
from shoal.transports.memory import MemorySwarm
from shoal_extras import chat as chat_module

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]

SMALL = """--nodes 2 --local 2 --peers 1 --num-generations 4 --threads 1 --evaluation.every 2 --eval-questions 1
    --eval-samples 2""".split()


class Endpoint(Parrot):
    """A policy that gives text alone, and as many answers as it likes."""

    def __init__(self, *answers: str, numbers: tuple[int, ...] = (4,)) -> None:
        super().__init__(*answers)
        self.numbers = numbers

    def generate(self, questions: Any, num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        texts = [self.answers[number % len(self.answers)] for number in range(num_generations)]
        counts = [self.numbers[at % len(self.numbers)] for at in range(len(questions))]
        return [tuple(map(Completion.of, texts[:count])) for count in counts]


def test_a_node_without_a_learner_contributes_and_takes_nothing(tmp_path: Path) -> None:
    swarm = MemorySwarm()
    ada, bob = make_node("ada", swarm, learner=None, policy=Endpoint()), make_node("bob", swarm)
    for _ in range(3):
        ada.act()
        bob.act()
        result = ada.learn()
        assert [s.rewards for s in result.local] == [(1.0, 0.0, 1.0, 0.0)] * 2
        assert result.from_peers == []
        assert result.update == UpdateResult()
        assert len(ada.pool) == 0
        assert len(bob.learn().from_peers) == 2
    row = round_metrics(ada, result)
    assert row["reward/local"] == 0.5
    absent = """reward/peers reward/trained_on rollouts/sampled rollouts/wanted rollouts/pool completions/mean_length
        tokens/generated""".split()
    assert [name for name in absent if row[name] is not None] == []
    assert set(round_metrics(bob, bob.learn())) - set(row) == {"loss", "seconds/learn"}
    assert row["completions/missing"] == 0
    assert len(rollout_rows(result, lambda asked: None)) == 8

    ada.save(tmp_path / "ada")
    again = make_node("ada", learner=None, policy=Endpoint())
    again.load(tmp_path / "ada")
    assert again.round == 3


def test_a_question_without_answers_is_no_rollout() -> None:
    swarm = MemorySwarm()
    ada, listener = make_node("ada", swarm, learner=None, policy=Endpoint(numbers=(0, 3))), join(swarm, "listener")
    ada.act()
    assert [len(r.completions) for r in listener.receive()] == [3]
    row = round_metrics(ada, ada.learn())
    assert row["rollouts/shared"] == 1
    assert row["completions/missing"] == 5

    silent = make_node("eve", swarm, learner=None, policy=Endpoint(numbers=(0,)))
    silent.act()
    row = round_metrics(silent, silent.learn())
    assert row["reward/local"] is row["completions/truncated"] is None
    assert row["rollouts/shared"] == row["rollouts/live_local"] == row["tokens/generated"] == 0
    assert row["completions/missing"] == 8


def test_rollouts_that_come_to_a_node_without_a_learner_do_not_pile_up() -> None:
    swarm = MemorySwarm()
    ada, bob = make_node("ada", swarm, learner=None), join(swarm, "bob")
    bob.share([rollout(question(6))])
    ada.act()
    ada.learn()
    assert ada.swarm.receive() == []


def test_a_question_that_was_not_answered_often_enough_is_left_out_of_an_evaluation() -> None:
    questions: dict[str, list[Question]] = {"a": [question(5), question(10)], "b": [question(15)]}
    result = evaluate(Endpoint(RIGHT, numbers=(4, 3, 0)), Exact(), questions, 4, 0)
    assert result.correct == {"a": [4], "b": []}
    assert result.unanswered == 2
    assert result.pass_at(1).value == 1
    assert result.pass_at(1, "b").value != result.pass_at(1, "b").value  # not a number


def run(server_url: str, folder: Path, *more: str, models: tuple[str, ...] = ("guppy",)) -> int:
    given = [word for model in (*models, server_url) for word in ("--model", model)]
    return main(["run", *SMALL, *given, "--out", str(folder), *more])


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_module, "BACKOFF", 0.0)


@pytest.mark.parametrize("source", ["--config", "--resume"])
def test_a_file_alone_sends_the_key_to_nobody(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda server, body: (200, chat(*["7"] * 8))) as server:
        assert run(f"{server.url}#m", tmp_path / "first", "--rounds", "1") == 0
        server.keys.clear()
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
        file = [str(tmp_path / "first"), "--rounds", "2"]
        if source == "--config":
            file = [str(tmp_path / "first" / "config.toml"), "--rounds", "1", "--out", str(tmp_path / "second")]
        assert main(["run", source, *file]) == 0
        assert server.keys
        assert set(server.keys) == {None}


def test_a_server_that_wants_a_key_is_named_for_the_user_to_confirm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
    with serving(lambda server, body: (401, {"error": "who are you"})) as server:
        (tmp_path / "file.toml").write_text(f'[policy]\nmodel = ["{server.url}#m"]\n')
        assert main(["run", "--config", str(tmp_path / "file.toml"), "--out", str(tmp_path / "out")]) == 2
        assert set(server.keys) == {None}
        assert f"set OPENAI_API_KEY, and OPENAI_BASE_URL={server.url}" in capsys.readouterr().err


def test_a_swarm_of_guppy_and_an_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
    folder = tmp_path / "run"
    # every other answer is a number that may be right: whether one is does not matter here
    with serving(lambda server, body: (200, chat(*["7", "words"] * 4, finish="stop"))) as server:
        assert run(f"{server.url}#m", folder, "--rounds", "2") == 0
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert main(["run", "--resume", str(folder), "--rounds", "3"]) == 0
        assert set(server.keys) == {"Bearer sk-secret-of-mine"}
        monkeypatch.delenv("OPENAI_BASE_URL")
        printed = capsys.readouterr()
        assert main(["eval", f"{server.url}#m", "--task", "gcd", "--questions", "2", "--samples", "4", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["all"]["questions"] == 2
    rows = read_metrics(folder)
    assert [(row["round"], row["node"]) for row in rows] == [(r, n) for r in range(4) for n in ("node-1", "node-2")]
    theirs = [row for row in rows if row["node"] == "node-2"]
    assert [row["eval/pass@1"] is not None for row in theirs if "eval/pass@1" in row] == [True] * 3
    assert all(row["rollouts/shared"] == 2 and row["reward/peers"] is None for row in theirs[1:])
    assert sum(
        row["rollouts/pool"] + row["rollouts/sampled"] for row in rows if row["node"] == "node-1" and row["round"]
    )
    assert (folder / "checkpoints" / "round-000003" / "node-2" / "node.json").exists()
    assert (folder / "config.toml").read_text().count(server.url) == 1
    everything = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert not any(b"sk-secret" in data for data in everything)
    assert "sk-secret" not in printed.out + printed.err


def test_an_endpoint_that_dies_stops_nobody(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "run"

    def answer(server: Server, body: dict[str, Any]) -> Reply:
        # alive for the trial, the first evaluation and the first round
        return good(server, body) if len(server.asked) <= 1 + 8 + 2 else (500, b"out of order")

    with serving(answer) as server:
        assert run(server.url, folder, "--rounds", "4") == 0
    said = capsys.readouterr().out
    assert said.count("node-2 gives fewer rollouts") == 1
    assert "HTTP 500: out of order" in said
    first, *_, last = [r["eval/pass@1"] for r in read_metrics(folder) if r["node"] == "node-1" and "eval/pass@1" in r]
    assert "it never practised (held-out pass@1)" in said  # the node that has both
    assert f"  before training  {first:6.1%} " in said
    assert f"  after round 4    {last:6.1%} " in said
    rows = [row for row in read_metrics(folder) if row["round"]]
    theirs = [row for row in rows if row["node"] == "node-2"]
    assert [row["completions/missing"] for row in theirs] == [0, 8, 8, 8]
    assert [row["rollouts/shared"] for row in theirs] == [2, 0, 0, 0]
    assert [row["eval/pass@1"] for row in theirs if "eval/pass@1" in row] == [None, None]
    assert [row["round"] for row in rows if row["node"] == "node-1" and row["seconds/learn"] > 0] == [1, 2, 3, 4]


def test_a_swarm_of_endpoints_alone(tmp_path: Path) -> None:
    with serving() as server:
        assert run(server.url, tmp_path / "run", "--rounds", "1", "--quiet", models=()) == 0
    assert len(read_metrics(tmp_path / "run")) == 4


@pytest.mark.parametrize("command", ["run", "eval"])
def test_an_endpoint_that_is_not_there(command: str, tmp_path: Path, capsys: Capture) -> None:
    url = free_url()
    arguments = ["--model", url, "--out", str(tmp_path / "run")] if command == "run" else [url]
    assert main([command, *arguments]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"shoal: the endpoint {url} does not answer: no connection")
    assert not (tmp_path / "run").exists()


def test_an_evaluation_that_is_not_answered_is_no_figure(capsys: Capture) -> None:
    def answer(server: Server, body: dict[str, Any]) -> Reply:
        return good(server, body) if len(server.asked) == 1 else (400, {"error": "too long"})

    with serving(answer) as server:
        assert main(["eval", server.url, "--task", "gcd", "--questions", "2"]) == 2
        assert "2 questions were not answered" in capsys.readouterr().err

        server.asked.clear()
        server.answer = lambda server, body: (
            (400, {"error": "long"}) if "Least" in body["messages"][-1]["content"] else good(server, body)
        )
        arguments = ["eval", server.url, "--task", "gcd", "--task", "lcm", "--questions", "1", "--json"]
        assert main(arguments) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["unanswered"], found["all"]["questions"]) == (1, 1)
        assert {task["pass@1"]["value"] for task in found["tasks"].values()} == {0.0, None}


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_ctrl_c_interrupts_an_endpoint_that_hangs() -> None:
    def answer(server: Server, body: dict[str, Any]) -> Reply | None:
        if body["messages"][-1]["content"] == "Say yes.":
            return good(server, body)
        process.send_signal(signal.SIGINT)
        server.over.wait(120)
        return None

    with serving(answer) as server:
        command = [sys.executable, "-m", "shoal", "eval", server.url, "--task", "gcd", "--questions", "1"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            said = process.communicate()[1]
    assert process.returncode == 130
    assert said == "shoal: interrupted\n"


def test_right_and_wrong_are_the_nodes_own_to_say() -> None:
    """What an endpoint answers is scored as anybody's."""
    ada = make_node("ada", learner=None, policy=Endpoint(WRONG))
    ada.act()
    assert [s.rewards for s in ada.learn().local] == [(0.0,) * 4] * 2
