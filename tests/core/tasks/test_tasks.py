"""Tasks, the adapter of reasoning-gym, and the suites."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.evaluation.blind import constants
from shoal.sandbox.verifier import Verifier
from shoal.tasks import SUITES, Task, Tasks, create_task

PRINT_HASHES = """
import json, sys
from shoal.config.tasks import TaskSpec
from shoal.tasks import create_task
tasks = [create_task(TaskSpec(name=name)) for name in sys.argv[1:]]
print(json.dumps([[task.name, task.config, *(task.question(2**40 + 5, i).hash for i in range(3))] for task in tasks]))
"""


def test_shoals_own_task_is_named_without_allowing_code() -> None:
    spec = TaskSpec(name="larger")
    config = TasksConfig(sources=[spec])
    assert config.code == []
    [question] = Tasks(config).draw(1, "key")
    task = create_task(spec)
    assert question.text.startswith("Which is larger, ")
    one, other = (int(word.strip("?")) for word in question.text.split() if word.strip("?").isdigit())
    assert 10 <= min(one, other) < max(one, other) <= 99
    right, wrong = str(max(one, other)), str(min(one, other))
    assert task.answer(question.id) == right  # type: ignore[attr-defined]
    answers = [f" {right}\n", wrong, "3", f"{right} is larger", ""]
    assert task.score(question.id, answers) == [1.0, 0.1, 0.1, 0.0, 0.0]
    with pytest.raises(UserError, match="takes no arguments"):
        create_task(TaskSpec(name="larger", parameters={"greatest": 10}))


def all_names() -> list[str]:
    from reasoning_gym.factory import DATASETS

    from shoal.tasks.reasoning import HASHED, NOT_TASKS

    return sorted(DATASETS.keys() - NOT_TASKS - HASHED)


@pytest.mark.slow
def test_every_task_gives_the_item_that_reasoning_gym_gives(capfd: pytest.CaptureFixture[str]) -> None:
    """Finds any further task that belongs in `PER_SEED`, and any whose items depend on those made before."""
    import reasoning_gym

    random, wrong = Random(0), []
    for name in all_names():
        task = create_task(TaskSpec(name=name))
        assert isinstance(task, Task)
        assert task.question(2**63 - 1, 1).id.seed == 2**63 - 1
        seed = random.getrandbits(31)
        item = reasoning_gym.create_dataset(name, seed=seed, size=1001)[7]
        if task.question(seed, 7).text != item["question"]:
            wrong.append(name)
    assert wrong == []
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_every_task_gives_the_same_question_in_every_process() -> None:
    """Finds any further task that belongs in `HASHED`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PRINT_HASHES, *all_names()],
            stdout=subprocess.PIPE,
            env={**environment, "PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]
    first, *others = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    for other in others:
        assert [a[0] for a, b in zip(first, other, strict=True) if a != b] == []


def test_a_task_that_depends_on_the_process_is_refused() -> None:
    if sys.flags.hash_randomization:
        with pytest.raises(UserError, match="PYTHONHASHSEED=0"):
            create_task(TaskSpec(name="ransom_note"))
    else:
        create_task(TaskSpec(name="ransom_note"))


def test_config_is_of_all_parameters() -> None:
    default = create_task(TaskSpec(name="gcd")).config
    assert create_task(TaskSpec(name="gcd", parameters={"min_value": 1})).config == default
    assert create_task(TaskSpec(name="gcd", parameters={"min_value": 2})).config != default
    listed = {"name": "basic_arithmetic", "parameters": {"operators": ["+", "-", "*", "/"]}}
    assert create_task(TaskSpec(**listed)).config == create_task(TaskSpec(name="basic_arithmetic")).config


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (TaskSpec(name="chainsum"), "'chain_sum'"),
        (TaskSpec(name="composite"), "no task"),
        (TaskSpec(name="gcd", parameters={"max_valu": 3}), "'max_value'"),
        (TaskSpec(name="gcd", parameters={"seed": 3}), "no parameter 'seed'"),
        (TaskSpec(name="gcd", parameters={"min_value": 9, "max_value": 3}), "max_value must be"),
        (TaskSpec(name="gcd", parameters={"min_value": "9"}), "refuses its parameters"),
        (TaskSpec(name="no_module:Task"), "cannot import 'no_module'"),
        (TaskSpec(name=":Task"), "cannot import ''"),
        (TaskSpec(name="test_verifier_tasks:Ecko"), "'Echo'"),
        (TaskSpec(name="test_verifier_tasks:NOT_A_TASK"), "is not a task"),
        (TaskSpec(name="test_verifier_tasks:Echo", parameters={"pepper": 1}), "pepper"),
    ],
)
def test_mistakes_are_named(spec: TaskSpec, message: str) -> None:
    with pytest.raises(UserError) as raised:
        create_task(spec)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_unknown_suite() -> None:
    with pytest.raises(UserError, match="did you mean 'pond'"):
        Tasks(TasksConfig(suite="ponds"))
    with pytest.raises(UserError, match="choose from games, paper, pictures, pond"):
        Tasks(TasksConfig(suite="zzz"))


def test_suites_fit_their_purpose() -> None:
    from reasoning_gym.utils import SYSTEM_PROMPTS

    assert {name: len(specs) for name, specs in SUITES.items()} == {
        "pond": 8,
        "tagged": 8,
        "reef": 7,
        "games": 1,
        "pictures": 5,
        "paper": 9,
    }
    for spec in SUITES["paper"]:
        assert (spec.system_prompt, spec.answer) == (SYSTEM_PROMPTS["default"], "tag")
    for spec in SUITES["pond"]:
        assert (spec.system_prompt, spec.answer) == ("", "whole")
        task = create_task(spec)
        questions = [task.question(0, index) for index in range(1001)]
        assert len({question.text for question in questions}) >= 95, spec.name
        assert max(len(question.text) for question in questions) < 200
        assert sum(len(task.entry(0, index)["answer"]) > 24 for index in range(1001)) <= 10  # 16 tokens are enough


def test_answers_of_reef_say_nothing_without_the_question() -> None:
    tasks = Tasks(TasksConfig(suite="reef"))
    held_out = tasks.held_out(60, seed=3)
    assert fmean(share or 0 for share in constants(tasks, held_out).values()) <= 0.05
    for label, questions in held_out.items():
        task, spec = tasks.lookup(questions[0].id)
        assert spec.examples == 3
        answers = Counter(task.answer(question.id) for question in questions)  # type: ignore[attr-defined]
        assert len(answers) >= 10, label
        assert max(len(message.content) for question in questions for message in question.chat) < 900


def test_the_system_prompt_comes_before_the_question() -> None:
    spec = TaskSpec(name="gcd", system_prompt="Be brief.")
    question = Tasks(TasksConfig(sources=[spec])).draw(1, "k")[0]
    bare = Tasks(TasksConfig(sources=[TaskSpec(name="gcd")])).draw(1, "k")[0]
    assert [message.role for message in question.prompt] == ["system", "user"]
    assert (question.text, question.hash, question.id) == (bare.text, bare.hash, bare.id)


def test_the_example_of_the_documentation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "tasks.md").read_text()
    (tmp_path / "squares.py").write_text(text.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    config = TasksConfig(sources=[TaskSpec(name="squares:Squares", parameters={"largest": 20})])
    question = Tasks(config).draw(1, "k")[0]
    number = int(question.text.split()[0])
    with Verifier(config) as verifier:
        assert verifier.score([(question.id, [f" {number**2}\n", "0"])]) == [[1.0, 0.0]]


def test_importing_tasks_is_light() -> None:
    """Neither torch nor reasoning-gym: the command line's help must not wait for them."""
    code = "import shoal.tasks, sys; print([m for m in ('torch', 'transformers', 'reasoning_gym') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    output = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert output.strip() == "[]"


@pytest.mark.parametrize("name", ["os:system", "builtins:exec", "subprocess:Popen", "shutil:rmtree", "os:environ"])
def test_what_is_no_task_is_not_even_called(name: str, tmp_path: Path) -> None:
    victim = tmp_path / "kept"
    victim.mkdir()
    for parameters in ({"command": f"rmdir {victim}"}, {"path": str(victim)}, {"args": ["rmdir", str(victim)]}):
        with pytest.raises(UserError, match="is not a task: name a class with the methods"):
            create_task(TaskSpec(name=name, parameters=parameters))
    assert victim.exists()


def test_a_function_that_says_that_it_makes_a_task_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made.py").write_text(
        "from shoal.tasks import Task\nfrom test_verifier_tasks import Echo\n"
        "def make(salt: str = '') -> Task:\n    return Echo(salt)\n"
        "def silent(salt=''):\n    raise AssertionError\n"
    )
    assert create_task(TaskSpec(name="made:make", parameters={"salt": "x"})).name == "echo"
    with pytest.raises(UserError, match="is not a task"):
        create_task(TaskSpec(name="made:silent"))
