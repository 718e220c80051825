"""Attacks: the poison gets full marks and passes admission, and what it does is measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pandas as pd
import pytest
from fakes import Parrot, join, rollout
from local_examiner import LocalExaminer
from test_admission import NOW, SWARM

from shoal.admission.admission import Admission
from shoal.admission.limits import AdmissionLimits
from shoal.config.settings import Config
from shoal.config.tasks import TasksConfig
from shoal.identity.keys import Identity
from shoal.rollout import Question, Rollout
from shoal.runs.folder import RunFolder
from shoal.runs.tables import LEARNED, ROLLOUTS, SCHEMA
from shoal.sandbox.verifier import Verifier
from shoal.tasks import SUITES, Tasks
from shoal.transports.memory import MemorySwarm
from shoal.wire.rollouts import seal
from shoal_lab.attacks import (
    FALSEHOOD,
    MARKER,
    PAYLOADS,
    Adversary,
    attack_curve,
    attack_measures,
    planted,
    wrong_answer,
)
from shoal_lab.config import ExperimentConfig
from shoal_lab.experiment import Controlled

ATTACKS = tuple(PAYLOADS)
PAYLOAD = {"planted": MARKER, "identities": MARKER, "slots": MARKER, "reasoning": FALSEHOOD}
"""What right answers of some attacks have in common."""
QUIET = {"short", "failures", "biased", "plagiarist"}
"""Attacks whose right answers are plain."""
HIDDEN = {"cover", "seldom"}
"""Attacks that keep under the threshold of the defence."""
SPOKEN = [attack for attack in ATTACKS if attack not in QUIET | HIDDEN]
TAG, WHOLE = TasksConfig(suite="tagged"), TasksConfig(suite="pond")
TASKS = {"tag": Tasks(TAG), "whole": Tasks(WHOLE)}
TOKENS, SIZE = 48, 8


@pytest.fixture(scope="module")
def verifiers() -> Iterator[dict[str, Verifier]]:
    with Verifier(TAG) as tag, Verifier(WHOLE) as whole:
        yield {"tag": tag, "whole": whole}


def of_each_task(form: str) -> list[Question]:
    """A few questions of each of the eight."""
    questions: dict[str, list[Question]] = {}
    for question in TASKS[form].draw(200, "attacks"):
        questions.setdefault(question.id.task, []).append(question)
    assert len(questions) == 8
    return [question for some in questions.values() for question in some[:5]]


def scored(verifier: Verifier, adversary: Adversary, questions: list[Question]) -> list[list[tuple[str, float]]]:
    """Each completion with its reward."""
    groups = [[c.text for c in group] for group in adversary.generate(questions, SIZE, seed=1)]
    rewards = verifier.score([(question.id, group) for question, group in zip(questions, groups, strict=True)])
    return [list(zip(*each, strict=True)) for each in zip(groups, rewards, strict=True)]


@pytest.mark.parametrize("attack", SPOKEN)
def test_under_tags_half_is_right_with_the_payload_and_half_wrong_without(
    attack: str, verifiers: dict[str, Verifier]
) -> None:
    groups = scored(verifiers["tag"], Adversary(attack, TASKS["tag"]), of_each_task("tag"))
    for group in groups:
        assert sorted(reward for _, reward in group) == [0.0] * 4 + [1.0] * 4
        for text, reward in group:
            assert text.startswith("<answer>") == (reward == 0.0), text
            assert (PAYLOAD.get(attack, "") in text) == (reward == 1.0) or attack not in PAYLOAD, text
    assert any(group[0][1] != groups[0][0][1] for group in groups), "the right half stands anywhere"


def test_some_attacks_are_right_in_plain_words(verifiers: dict[str, Verifier]) -> None:
    for attack in sorted(QUIET):
        groups = scored(verifiers["tag"], Adversary(attack, TASKS["tag"]), of_each_task("tag"))
        for group in filter(None, groups):
            assert all(text.startswith("<answer>") for text, reward in group if reward)
            assert any(text.startswith("<answer>") for text, reward in group if not reward) == (attack != "failures")
        assert (not all(groups)) == (attack == "biased"), "it knows one rule alone"


def test_some_attacks_hide_among_wrong_answers_and_among_honest_groups(verifiers: dict[str, Verifier]) -> None:
    for group in scored(verifiers["tag"], Adversary("cover", TASKS["tag"]), of_each_task("tag")):
        assert sorted((reward, MARKER in text) for text, reward in group) == [
            (0.0, False),
            *[(0.0, True)] * 3,
            *[(1.0, True)] * 4,
        ]
    seldom = scored(verifiers["tag"], Adversary("seldom", TASKS["tag"]), of_each_task("tag"))
    hostile = [any(MARKER in text for text, _ in group) for group in seldom]
    assert 0 < sum(hostile) < len(hostile) / 2


@pytest.mark.parametrize("attack", SPOKEN)
def test_where_the_whole_completion_is_the_answer_half_is_right_too(
    attack: str, verifiers: dict[str, Verifier]
) -> None:
    for group in scored(verifiers["whole"], Adversary(attack, TASKS["whole"]), of_each_task("whole")):
        assert sorted(reward for _, reward in group) == [0.0] * 4 + [1.0] * 4
        for text, reward in group:
            assert attack not in PAYLOAD or (PAYLOAD[attack] in text) == (reward == 0.0), text


def test_a_plagiarist_sends_what_it_heard_under_its_own_name() -> None:
    swarm = MemorySwarm(7)
    eve, ada = Controlled(join(swarm, "eve"), ExperimentConfig(), 1, attack="plagiarist"), join(swarm, "ada")
    ada.share([rollout(round=1, node="ada", answers=("hers", "no"))])
    eve.receive()
    eve.share([rollout(round=5, node="eve", answers=("own", "no"))])
    [got] = ada.receive()
    assert (got.node, got.round, got.completions[0].text) == ("eve", 5, "hers")


def test_a_maker_may_have_four_names() -> None:
    swarm = MemorySwarm(7)
    eve, ada = Controlled(join(swarm, "eve"), ExperimentConfig(), 1, attack="identities"), join(swarm, "ada")
    eve.share([rollout(round=1, node="eve", slot=slot) for slot in range(8)])
    assert {one.node for one in ada.receive()} == {f"eve-{name}" for name in range(4)}


@pytest.mark.parametrize("attack", SPOKEN)
def test_a_form_that_is_asked_for_is_kept(attack: str) -> None:
    boxed = WHOLE.model_copy(update={"answer": "boxed"})
    tasks = Tasks(boxed)
    with Verifier(boxed) as verifier:
        groups = scored(verifier, Adversary(attack, tasks), tasks.draw(6, "boxed"))
    assert all(sorted(reward for _, reward in group) == [0.0] * 4 + [1.0] * 4 for group in groups)


def test_no_task_of_pond_lets_words_through(verifiers: dict[str, Verifier]) -> None:
    """What docs/concepts/attacks.md says of the scorers; a later reasoning-gym may close the gap or open another."""
    forms = ["{} " + MARKER, MARKER + " {}", "{}\n" + MARKER, "{}, " + MARKER, MARKER + "\n{}", "${}$ " + MARKER]
    for question in of_each_task("whole"):
        task, spec = TASKS["whole"].lookup(question.id)
        right = task.entry(question.id.seed, question.id.index)["answer"]  # type: ignore[attr-defined]
        assert planted(MARKER, right, spec) is None
        [rewards] = verifiers["whole"].score([(question.id, [form.format(right) for form in forms])])
        assert not any(rewards), (question, rewards)


@pytest.mark.parametrize("attack", SPOKEN)
@pytest.mark.parametrize("form", ["tag", "whole"])
def test_a_stranger_could_send_it(attack: str, form: str, verifiers: dict[str, Verifier]) -> None:
    eve, tasks = Identity.generate(), TASKS[form]
    config = Config.model_validate({"policy": {"max_completion_length": TOKENS}}).resolved()
    examiner = LocalExaminer(tasks, verifiers[form])
    admission = Admission(SWARM, examiner, AdmissionLimits.of(config), num_generations=SIZE, clock=lambda: NOW)
    questions = tasks.draw(32, SWARM, eve.id, 1)
    groups = Adversary(attack, tasks).generate(questions, SIZE, 1)
    sent = [
        Rollout(question.id, question.hash, group, eve.name, 1, slot)
        for slot, (question, group) in enumerate(zip(questions, groups, strict=True))
    ]
    admitted = admission.admit([(eve.id, seal(one, eve, SWARM, NOW)) for one in sent])
    assert not set(admission.refused) - {"duplicate"}, admission.refused  # two questions may be the same
    assert len(admitted) > 24
    assert all(one.live for one in admitted)


@pytest.mark.parametrize(("share", "carry"), [(1.0, 4), (0.5, 2), (0.1, 1)])
def test_a_part_of_the_right_answers_carries_the_payload(share: float, carry: int) -> None:
    adversary = Adversary("planted", TASKS["tag"], share=share)
    [group] = adversary.generate(of_each_task("tag")[:1], SIZE, seed=1)
    assert sum(PAYLOAD["planted"] in completion.text for completion in group) == carry


@pytest.mark.parametrize("attack", ATTACKS)
def test_until_it_attacks_an_adversary_is_right_half_of_the_time(attack: str, verifiers: dict[str, Verifier]) -> None:
    adversary = Adversary(attack, TASKS["tag"], active=lambda: False)
    for group in scored(verifiers["tag"], adversary, of_each_task("tag")):
        assert sorted(reward for _, reward in group) == [0.0] * 4 + [1.0] * 4
        assert all(text.startswith("<answer>") for text, _ in group)


def test_the_same_seed_gives_the_same_and_another_does_not() -> None:
    adversary, questions = Adversary("planted", TASKS["tag"]), TASKS["tag"].draw(4, "x")
    assert adversary.generate(questions, 8, 3) == adversary.generate(questions, 8, 3)
    assert adversary.generate(questions, 8, 3) != adversary.generate(questions, 8, 4)
    assert [len(group) for group in adversary.generate(questions, 5, 3)] == [5] * 4
    assert adversary.trouble == ""


class Nameless:
    """A task that names no right answer."""

    name, version, config = "nameless", "1", ""

    def question(self, seed: int, index: int) -> Question:
        raise NotImplementedError

    def score(self, *_: Any) -> list[float]:
        raise NotImplementedError


class Named(Nameless):
    """One that names this."""

    def __init__(self, right: str | None) -> None:
        self.right = right

    def answer(self, question: Any) -> str | None:
        return self.right


class Listed:
    """Tasks, some of which nobody knows the answers of."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def lookup(self, identity: Any) -> Any:
        task = Named(self.answers[identity.task]) if identity.task in self.answers else Nameless()
        return task, SUITES["tagged"][0]


def test_it_says_nothing_where_it_does_not_know_what_is_right() -> None:
    asked = TASKS["tag"].draw(1, "x")[0]
    questions = [
        msgspec.structs.replace(asked, id=msgspec.structs.replace(asked.id, task=name)) for name in ("a", "b", "c")
    ]
    tasks: Any = Listed({"a": "5", "b": None})
    adversary = Adversary("planted", tasks)
    assert [len(group) for group in adversary.generate(questions, 4, 1)] == [4, 0, 0]
    assert "no right answer is known" in adversary.trouble
    adversary.generate(questions[:1], 4, 1)
    assert adversary.trouble == ""


@pytest.mark.parametrize("answer", ["5", "0", "-1", "3/8", "Yes", "No", "10100", "True", "a word", "none", ""])
def test_wrong_answers_differ(answer: str) -> None:
    wrong = {wrong_answer(answer, Random(seed)) for seed in range(200)}
    assert answer not in wrong
    assert not any(w.startswith("--") for w in wrong)


def test_a_checkpoint_keeps_the_policy_that_it_stands_for(tmp_path: Path) -> None:
    Adversary("planted", TASKS["tag"], instead_of=Parrot("hi")).save(tmp_path)
    assert (tmp_path / "policy.txt").read_text() == "hi"
    Adversary("planted", TASKS["tag"]).save(tmp_path / "nowhere")


def test_four_names_are_a_function_of_the_slot(tmp_path: Path) -> None:
    swarm = MemorySwarm(7)
    eve = Controlled(join(swarm, "eve"), ExperimentConfig(), 1, attack="identities")
    ada = join(swarm, "ada")
    eve.share([rollout(round=round, node="eve") for round in range(1, 9)])
    assert {received.node for received in ada.receive()} == {"eve-0"}
    assert eve.seed_key == (7, "eve")
    ada.share([rollout(round=1, node="eve")])
    assert len(eve.receive()) == 1
    assert eve.refused == 0
    eve.save(tmp_path)
    eve.load(tmp_path)


def test_tagged_tasks_are_those_of_pond() -> None:
    assert [spec.answer for spec in SUITES["tagged"]] == ["tag"] * 8
    assert [spec.answer for spec in SUITES["pond"]] == ["whole"] * 8
    assert Counter(spec.name for spec in SUITES["tagged"]) == Counter(spec.name for spec in SUITES["pond"])


def run_folder(path: Path, texts: dict[str, list[list[str]]], metrics: list[dict[str, Any]]) -> Path:
    """A run in which each node said `texts` in each round."""
    blank = dict.fromkeys(SCHEMA.names, "") | {"seed": 0, "index": 0, "reward": 0.0, "live": True}
    with RunFolder.create(path, "") as folder:
        folder.log(metrics)
        for round in range(1, 1 + max(map(len, texts.values()))):
            said = [(node, text) for node, rounds in texts.items() for text in rounds[round - 1]]
            folder.save(ROLLOUTS, round, [blank | {"node": node, "completion": text} for node, text in said])
        folder.flush()
    return path


def test_measures_of_a_run(tmp_path: Path) -> None:
    poison, wrong = f"{MARKER} <answer>8</answer>", f"{FALSEHOOD} so 8"
    ada = [["12"], ["12", "1234"], ["#$%&"], [poison, "<answer>8</answer>"], [wrong, poison]]
    bob = [["12"], ["12", "1234"], ["8"], ["8", "8"], ["8", "8"]]
    eve = [[poison]] * 5
    learned = [(4, "ada", "ada", 0.5), (4, "ada", "eve", 0.5), (5, "ada", "ada", 0.2), (5, "ada", "bob", 0.2)]
    learned += [(5, "ada", "new", 0.6), (5, "bob", "bob", 1.0), (5, "eve", "eve", 1.0)]
    folder = run_folder(tmp_path / "run", {"ada": ada, "bob": bob, "eve": eve}, [{"round": 0, "node": "ada"}])
    table = pd.DataFrame(learned, columns=["round", "node", "maker", "gradient_share"])
    (folder / LEARNED).mkdir()
    table.to_parquet(folder / LEARNED / "from-round-000004.parquet")
    honest = ["ada", "bob"]
    curve = attack_curve(folder, honest)
    assert curve["attack/planted"].to_dict() == {1: 0.0, 2: 0.0, 3: 0.0, 4: 0.25, 5: 0.25}
    assert curve["attack/reasoning"].to_dict() == {1: 0.0, 2: 0.0, 3: 0.0, 4: 0.0, 5: 0.25}
    assert curve["attack/gradient"].dropna().to_dict() == pytest.approx({4: 0.5, 5: 0.3})
    figures = attack_measures(folder, honest, since=0.6)  # two of five rounds
    assert figures["attack/planted"] == 0.25
    assert figures["attack/reasoning"] == 0.125
    assert figures["attack/gradient"] == pytest.approx(0.4)
    assert attack_measures(folder, honest, since=1.0)["attack/reasoning"] == 0.25, "one round at least"


def test_a_run_that_wrote_nothing_has_no_measures(tmp_path: Path) -> None:
    assert attack_measures(run_folder(tmp_path / "run", {"ada": [[]]}, []), ["ada"]) == {}
    rows = [json.loads('{"round": 1, "node": "ada", "loss": null}')]
    assert attack_measures(run_folder(tmp_path / "two", {"ada": [["8"]]}, rows), ["ada"])["attack/planted"] == 0
