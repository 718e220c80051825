"""Tasksets of verifiers as tasks: what users rely on."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from limits import within
from tasksets import SUMS, Write

from shoal.config.load import config_from_keywords, load_config
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.runs.data import check_data, data_lines
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal_extras.validation import validate

names = (f"sums_{number}" for number in itertools.count())


def config(name: str, **more: Any) -> TasksConfig:
    return TasksConfig.model_validate({"sources": [{"name": name, **more}], "partial_credit": True})


def of(body: str = "", data: str = "prompt='1 + 1 =', answer='2'", extra: str = "", head: str = "", n: int = 9) -> str:
    """A taskset with one thing that is different."""
    reward = "@vf.reward\n    async def right(self, trace) -> float:\n        return 1.0\n"
    body = body.replace("REWARD", reward)
    return f"""
import verifiers.v1 as vf
{head}
class Data(vf.TaskData):
    answer: str = ""
class One(vf.Task[Data, vf.State]):
    {body or reward}
class Many(vf.Taskset[One, vf.TasksetConfig]):
    {extra or "pass"}
    def load(self):
        return [One(Data({data}), self.config.task) for _ in range({n})]
__all__ = ["Many"]
"""


def test_every_task_is_a_question_that_a_peer_with_the_same_taskset_makes_again(taskset: Write) -> None:
    one, other = (Tasks(config(taskset(next(names), SUMS))) for _ in range(2))
    [task] = one.tasks
    assert {task.question(seed, 0).text for seed in range(2000)} == {
        f"{a} + {b} =" for a in range(10) for b in range(10)
    }
    assert [q.text for q in one.draw(5, "key", 3)] == [q.text for q in one.draw(5, "key", 3)]
    assert one.tasks[0].version == other.tasks[0].version
    [question] = one.draw(1, "key", 3)
    assert not one.is_held_out(question)
    assert one.question(question.id) == question
    assert all(one.is_held_out(each) for each in one.held_out(4, 0)[task.name])


def test_another_copy_has_another_identity(taskset: Write) -> None:
    name = taskset(next(names), SUMS)
    whole, part = (Tasks(config(name, parameters={"largest": n})).tasks[0] for n in (9, 8))
    assert (whole.name, whole.config) == (part.name, part.config)
    assert whole.version != part.version
    changed = SUMS.replace("answer=str(a + b)", "answer=str(a + b + (a == b == 9))")
    assert Tasks(config(taskset(next(names), changed))).tasks[0].version != whole.version


@pytest.mark.slow
def test_answers_are_scored_by_the_sum_of_rewards_within_the_guard(taskset: Write) -> None:
    settings = config(taskset(next(names), SUMS))
    tasks = Tasks(settings)
    question = tasks.first(tasks.labels[0], 7)
    right = tasks.tasks[0].answer(question.id)  # type: ignore[attr-defined]
    said = [right, f" {right}\n", "99", "nothing", "much", "minus", "raise", "open", "endless", f"{right}."]
    with Verifier(within(0.5, settings)) as verifier:
        assert verifier.score([(question.id, said)]) == [[1, 1, 0.1, 0, 9e8, -4.5, 0, 0, 0, 0]]
        assert verifier.failures == {"error": 1, "refused": 1, "timeout": 1}
        assert "(3 of 10 answers failed)" in verifier.trouble
        assert "beyond 0 to 1, such as 9e+08" in verifier.trouble
    with Verifier(settings.model_copy(update={"partial_credit": False})) as verifier:
        assert verifier.score([(question.id, [right, "99"])]) == [[1, 0]]


@pytest.mark.slow
def test_right_answers_are_known_and_validated(taskset: Write) -> None:
    [found] = validate(config(taskset(next(names), SUMS)), 20, 0).values()
    assert (found.answered, found.gold) == (20, 1.0)


@pytest.mark.parametrize(
    ("says", "right"),
    [
        (r"Answer in \\boxed{}.", r"\boxed{2}"),
        ("End with #### and the number.", "#### 2"),
        ("Think in <think> and put the answer in <number> tags.", "<number>2</number>"),
        ("Answer.", "2"),
    ],
)
def test_a_right_answer_stands_where_the_prompt_wants_it(taskset: Write, says: str, right: str) -> None:
    [task] = Tasks(config(taskset(next(names), of(data=f"prompt='1 + 1 =', answer='2', system_prompt='{says}'")))).tasks
    question = task.question(1, 0)
    assert task.answer(question.id) == right  # type: ignore[attr-defined]
    assert [m.role for m in question.prompt] == ["system", "user"]
    assert question.text == "1 + 1 ="


REFUSED = {
    "a reward needs a runtime": (of("@vf.reward\n    async def passes(self, trace, runtime) -> float: ..."), "passes"),
    "no rewards": (of("pass"), "no rewards"),
    "a container": (of("NEEDS_CONTAINER = True\n    REWARD"), "container"),
    "an image": (of(data="prompt='x', image='python:3.12'"), "container"),
    "a setup": (of("REWARD\n    async def setup(self, trace, runtime) -> None: ..."), "setup"),
    "tools": (of("REWARD\n    @classmethod\n    def toolsets(cls, config): return [1]"), "tools"),
    "shared tools": (of(extra="@classmethod\n    def toolsets(cls, config): return [1]"), "tools"),
    "a user": (of(data="answer='2'"), "a user begins"),
    "turns with tools": (
        of(data="prompt=[vf.UserMessage(content='x'), vf.ToolMessage(tool_call_id='1', content='y')]"),
        "calls of tools",
    ),
    "pictures": (
        of(
            data="prompt=[vf.UserMessage(content=[vf.ImageUrlContentPart(image_url={'url': 'data:,'})])]",
        ),
        "pictures",
    ),
    "no question": (of(data="prompt=' '"), "task 0"),
    "an answer at the end": (of(data="prompt=[vf.AssistantMessage(content='x')]"), "task 0"),
    "a huge question": (of(data="prompt='x' * 200_000"), "200,000"),
    "a judge": (
        of(
            extra="def __init__(self, config):\n        super().__init__(config.model_copy(update={'task': Judged()}))"
        ).replace(
            "class Many", "class Judged(vf.TaskConfig):\n    judge: vf.JudgeConfig = vf.JudgeConfig()\nclass Many"
        ),
        "a model judges",
    ),
    "an environment": (of().replace("__all__ = [", "class Game(vf.Env): ...\n__all__ = ['Game', "), "Game"),
    "no end": (of(extra="INFINITE = True"), "no end"),
    "nothing": (of(n=0), "has no tasks"),
    "a load that fails": (of(data="prompt=1/0"), "ZeroDivisionError"),
    "an import that fails": ("import nowhere_at_all", "nowhere_at_all"),
    "v0": ("def load_environment(): ...\n__all__ = ['load_environment']", "for verifiers v1"),
    "a reward that is not async": (of("@vf.reward\n    def now(self, trace) -> float: return 1.0"), "not async"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_taskset_that_cannot_be_used_is_refused_in_one_line(taskset: Write, case: str) -> None:
    text, reason = REFUSED[case]
    with pytest.raises(UserError, match=reason) as caught:
        Tasks(config(taskset(next(names), text)))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_missing_taskset_and_a_wrong_parameter_are_named(taskset: Write) -> None:
    with pytest.raises(UserError, match="taskset 'not-there' cannot be loaded"):
        Tasks(config("verifiers:not-there"))
    with pytest.raises(UserError, match=r"smallest: .*largest"):
        Tasks(config(taskset(next(names), SUMS), parameters={"smallest": 1}))
    with pytest.raises(UserError, match="give it as --task"):
        config_from_keywords({"data": "verifiers:not-there"})
    with pytest.raises(UserError, match="give the name of a module"):
        Tasks(config("verifiers:a b"))


def test_a_file_that_names_a_taskset_needs_allow_code(taskset: Write, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f'[[tasks.sources]]\nname = "{taskset(next(names), SUMS)}"\nparameters = {{ largest = 5 }}\n')
    with pytest.raises(UserError, match="--allow-code"):
        load_config(file)
    assert len(Tasks(load_config(file, allow_code=True).tasks).tasks[0]) == 36  # type: ignore[arg-type]


@pytest.mark.slow
def test_rewards_that_want_the_network_and_tasks_that_vary_are_refused_before_training(taskset: Write) -> None:
    asks = SUMS.replace("said = trace.last_reply", "said = trace.last_reply; socket.socket()")
    varies = SUMS.replace("answer=str(a + b)", "answer=str(time.time_ns())")
    for text, reason in ((asks, "network"), (varies, "each process loads other tasks")):
        with pytest.raises(UserError, match=reason):
            check_data(config_from_keywords({"task": taskset(next(names), text)}), trains=True)
    good = config_from_keywords({"task": taskset(next(names), SUMS)})
    check_data(good, trains=True)
    [line] = data_lines(Tasks(good.tasks))
    assert "100 tasks of verifiers, scored by correct, digits" in line
