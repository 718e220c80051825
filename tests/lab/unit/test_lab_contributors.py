"""Contributors: people by script, pickers by a reward model, and nodes that a reward model trains."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
from fakes import Exact, Parrot, Sayings, question, rollout
from pydantic import ValidationError

from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.policy.device import place
from shoal.rewards import Combined, RewardVerifier
from shoal.rewards.combined import Entry
from shoal.rewards.reward import Verified
from shoal.rewards.scorer import Scorer
from shoal.rollout import QuestionId
from shoal.runs.folder import RunFolder, read_metrics
from shoal.runs.run import Run
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal_extras.rewards.model import ModelReward
from shoal_lab.bases import Judged, judged_answers, make_base
from shoal_lab.cells import Silent
from shoal_lab.config import LabConfig
from shoal_lab.contributors import Person, Picker
from shoal_lab.experiment import Experiment, ShufflingScorer
from shoal_lab.recipes import Recipe, RewardRecipe, in_order
from shoal_lab.results import counted_nodes
from shoal_lab.study import Study

TASKS = TasksConfig(suite="tagged")


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier(TASKS) as found:
        yield found


@pytest.fixture(scope="module")
def taste(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model that saw next to nothing."""
    folder = tmp_path_factory.mktemp("bases") / "taste"
    recipe = RewardRecipe(kind="reward", start="guppy", questions=12, samples=2, steps=2, batch=8)
    make_base(recipe, "guppy", folder, lambda text: None)
    return folder


def config(rewards: Sequence[dict[str, Any]] = (), nodes: int = 3, **experiment: Any) -> LabConfig:
    settings = {
        "rounds": 2,
        "threads": 1,
        "checkpoint_every": 1,
        "rewards": list(rewards),
        "round": {"nodes": nodes, "local": 2, "peers": 2, "workers": 0},
        "evaluation": {"every": 0, "questions": 1, "samples": 1},
        "experiment": experiment,
    }
    return LabConfig.model_validate(settings)


def run(folder: Path, settings: LabConfig) -> Experiment:
    with RunFolder.create(folder, settings.to_toml()) as kept, Verifier(settings.tasks) as verifier:
        with closing(Experiment(settings, None, verifier)) as done:
            Run(done, kept, Silent(lambda round: None)).go(threading.Event())
        return done


def rewards_of(person: Person, size: int, verifier: Verifier) -> list[list[float]]:
    questions = Tasks(TASKS).draw(200, "person")
    groups = [[c.text for c in group] for group in person.generate(questions, size, 1)]
    pairs = [(q.id, texts) for q, texts in zip(questions, groups, strict=True) if texts]
    assert all(len(set(texts)) == len(texts) for _, texts in pairs)
    return verifier.score(pairs)


def test_a_person_is_right_as_often_as_his_skill_says(verifier: Verifier) -> None:
    person = Person(Tasks(TASKS), 0.8, Parrot())
    single = rewards_of(person, 1, verifier)
    assert {len(rewards) for rewards in single} == {1}
    assert sum(rewards[0] for rewards in single) / len(single) == pytest.approx(0.8, abs=0.1)
    assert {rewards[0] for rewards in rewards_of(Person(Tasks(TASKS), 1.0, Parrot()), 1, verifier)} == {1.0}
    assert {rewards[0] for rewards in rewards_of(Person(Tasks(TASKS), 0.0, Parrot()), 1, verifier)} == {0.0}


def test_of_several_answers_of_a_person_one_is_right_at_most(verifier: Verifier) -> None:
    groups = rewards_of(Person(Tasks(TASKS), 0.8, Parrot()), 4, verifier)
    assert {len(rewards) for rewards in groups} <= {3, 4}
    assert {sum(rewards) for rewards in groups} == {0.0, 1.0}
    assert sum(map(sum, groups)) / len(groups) == pytest.approx(0.8, abs=0.1)
    assert len({rewards.index(1.0) for rewards in groups if sum(rewards)}) == 4, "it stands anywhere"


def test_a_person_says_the_same_again_and_nothing_where_nothing_is_right() -> None:
    person = Person(Tasks(TASKS), 0.5, Parrot())
    questions = Tasks(TASKS).draw(20, "person")
    assert person.generate(questions, 3, 1) == person.generate(questions, 3, 1) != person.generate(questions, 3, 2)

    class Bare(Tasks):
        def lookup(self, identity: QuestionId) -> Any:
            return object(), None

    nobody = Person(Bare(TASKS), 0.5, Parrot())
    assert nobody.generate(questions[:1], 3, 1) == [()]
    assert "no right answer is known" in nobody.trouble


class Longer:
    """A verifier by length."""

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        return [[len(text) / 10 for text in texts] for _, texts in items]


@pytest.mark.parametrize(("count", "given"), [(1, "dddd"), (2, "a dddd"), (3, "a ccc dddd"), (4, "a bb ccc dddd")])
def test_a_picker_gives_the_best_and_the_worst(count: int, given: str) -> None:
    policy = Parrot("a", "ccc", "bb", "dddd")
    picker = Picker(policy, Scorer(Sayings(), Longer()), 4)
    [group] = picker.generate([question(1)], count, 7)
    assert sorted(c.text for c in group) == sorted(given.split())
    assert policy.seeds == [7]
    [short] = Picker(Parrot("a", "bb"), Scorer(Sayings(), Longer()), 2).generate([question(1)], 4, 7)
    assert len(short) == 2, "there are no more"


def test_people_in_a_run_give_and_are_not_counted(tmp_path: Path) -> None:
    settings = config(contributors=1)
    assert counted_nodes(settings) == ["node-1", "node-2"]
    done = run(tmp_path / "run", settings)
    assert [node.learner is None for node in done.nodes] == [False, False, True]
    rows = read_metrics(tmp_path / "run")
    assert {row["node"] for row in rows if "eval/pass@1" in row} == {"node-1", "node-2"}
    given = pandas.read_parquet(tmp_path / "run" / "rollouts.parquet").query("node == 'node-3'")
    assert len(given) == 2, "one answer in each round"
    learned = pandas.read_parquet(tmp_path / "run" / "learned.parquet")
    assert set(learned.node) == {"node-1", "node-2"}
    assert "node-3" in set(learned.query("foreign").maker)


@pytest.mark.slow
def test_some_nodes_go_by_a_reward_model_and_the_others_by_the_verifier(tmp_path: Path, taste: Path) -> None:
    rewards = [{"kind": "model", "name": "taste", "model": str(taste)}]
    picker = {"contributor": "picker", "contributor_answers": 4, "contributor_generations": 8}
    settings = config(rewards, contributors=1, rewarded=2, **picker)
    done = run(tmp_path / "run", settings)
    assert [node.scorer.verifier is done.verifier for node in done.nodes] == [True, False, False]
    rows = pandas.read_parquet(tmp_path / "run" / "rollouts.parquet")
    assert set(rows[rows.node == "node-1"].reward) <= {0.0, 1.0}
    assert not set(rows[rows.node == "node-2"].reward) & {0.0, 1.0}
    picked = rows[rows.node == "node-3"]
    assert len(picked) == 2 * 4
    for row in read_metrics(tmp_path / "run"):
        assert row["round"] == 0 or 0 < row["reward/local/taste"] < 1


def test_rewards_of_several_kinds_are_shuffled_as_the_verifiers_are() -> None:
    length = SimpleNamespace(score=lambda items: [[len(text) / 10 for text in texts] for _, texts in items])
    entries = [Entry("right", Verified(Exact("bbb")), gate=True), Entry("long", length)]  # type: ignore[arg-type]
    plain = Scorer(Sayings(), RewardVerifier(Sayings(), Combined(entries)))
    given = [rollout(question(number), ("a", "bbb", "cc", "dddd"), slot=number) for number in range(1, 5)]
    assert {scored.rewards for scored in plain.score(given)} == {(0.0, 0.3, 0.0, 0.0)}
    orders = {scored.rewards for scored in ShufflingScorer(plain.tasks, plain.verifier, 1, "").score(given)}
    assert len(orders) > 1
    assert {tuple(sorted(rewards)) for rewards in orders} == {(0.0, 0.0, 0.0, 0.3)}


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no \\[\\[rewards\\]\\]"):
        run(tmp_path / "run", config(rewarded=1))
    with pytest.raises(ValidationError, match="one of the two"):
        config(contributors=1, adversaries=1)
    with pytest.raises(ValidationError, match="more than it generates"):
        config(contributor="picker", contributor_answers=9, contributor_generations=8)


def test_answers_are_judged_by_the_verifier_not_by_how_they_were_made() -> None:
    tasks = Tasks(TasksConfig(suite="pond", only=["chain_sum"]))
    [asked] = tasks.draw(1, "judged")
    answer = tasks.lookup(asked.id)[0].entry(asked.id.seed, asked.id.index)["answer"]  # type: ignore[attr-defined]
    found = judged_answers(tasks, [asked], Parrot("I do not know.", answer), Exact(answer), 2, 0)
    assert [judged.right for judged in found] == [True, False, False, False, True]
    assert found[0] == Judged(asked, answer, True)
    assert found[3].text == "I do not know."


def test_a_reward_model_is_one_that_runs_take(taste: Path) -> None:
    reward = ModelReward(str(taste), place("cpu"))
    ((one, other),) = reward.score([(question(1), ["4", "I do not know."])])
    assert one is not None
    assert 0 < one < 1
    assert one != other
    end = reward.tokenizer.decode(reward.inputs([(question(1), "4")])["input_ids"][0])
    assert end == question(1).text + "\n4\n"
    assert json.loads((taste / "recipe.json").read_text())["kind"] == "reward"


STUDY: dict[str, Any] = {
    "title": "A trial",
    "seeds": [1],
    "bases": {"sparse": {"start": "guppy"}, "taste": {"kind": "reward", "start": "sparse"}},
    "base": {"policy": {"model": ["base:sparse"]}},
    "arms": {
        "verifier": {},
        "model": {"rewards": [{"kind": "model", "model": "base:taste"}]},
        "both": {"rewards": [{"kind": "verifier", "gate": True}, {"kind": "model", "model": "base:taste"}]},
    },
}


def test_arms_differ_by_their_rewards_and_name_reward_models_of_the_study(tmp_path: Path) -> None:
    study = Study.model_validate(STUDY)
    assert in_order(study.bases) == [["sparse"], ["taste"]]
    rewards = {cell.arm: study.config(cell, tmp_path).rewards for cell in study.cells()}
    assert rewards["verifier"] == []
    assert [spec.kind for spec in rewards["both"]] == ["verifier", "model"]
    assert rewards["model"][0].model == str(tmp_path / "bases" / "taste")
    again = Study.model_validate(study.model_dump(mode="json", exclude_none=True, exclude_defaults=True))
    assert isinstance(again.bases["taste"], RewardRecipe)
    assert isinstance(again.bases["sparse"], Recipe)


@pytest.mark.parametrize(
    ("arm", "complaint"),
    [
        ({"policy": {"model": ["base:taste"]}}, "is of kind reward, and this takes a policy"),
        ({"rewards": [{"kind": "model", "model": "base:sparse"}]}, "is of kind policy, and this takes a reward"),
        ({"rewards": [{"kind": "model", "model": "base:none"}]}, "no base 'none'"),
    ],
)
def test_a_policy_is_no_reward_model_nor_the_other_way_round(arm: dict[str, Any], complaint: str) -> None:
    study = Study.model_validate({**STUDY, "arms": {"a": arm}})
    with pytest.raises(UserError, match=complaint):
        study.config(next(study.cells()))
    with pytest.raises(ValueError, match="nothing to make these from"):
        in_order({"taste": RewardRecipe(kind="reward", start="guppy"), "b": Recipe(start="taste")})
