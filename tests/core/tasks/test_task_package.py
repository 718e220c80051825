"""The package of docs/extend/tasks.md with the task of docs/guides/tasks.md, as they stand there: installed, asked,
scored in the sandbox."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from installed import installed

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal.sandbox.pipes import Candidate, Verdict
from shoal.sandbox.verifier import Verifier
from shoal.sandbox.worker import examined
from shoal.tasks import Tasks, create_task

DOCS = Path(__file__).parents[3] / "docs"
LONGEST = 40
"""Lines of the example."""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder into which the example is installed."""
    [settings] = re.findall(r"```toml\n(.*?)```", (DOCS / "extend" / "tasks.md").read_text("utf-8"), re.DOTALL)
    module = re.findall(r"```python\n(.*?)```", (DOCS / "guides" / "tasks.md").read_text("utf-8"), re.DOTALL)[0]
    assert len((settings + module).splitlines()) <= LONGEST
    project = tomllib.loads(settings)["project"]
    [(group, entries)] = project["entry-points"].items()
    (tmp_path / "shoal_squares.py").write_text(module)
    installed(tmp_path, project["name"], group, entries)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_task_of_an_installed_package_is_asked_and_scored_in_the_sandbox(package: Path) -> None:
    config = TasksConfig(sources=[TaskSpec(name="squares", parameters={"largest": 20})])
    tasks = Tasks(config)
    [question] = tasks.draw(1, "key")
    right = tasks.answer(question.id)
    assert right is not None
    assert question.text == f"{int(int(right) ** 0.5)} squared ="
    with Verifier(config) as verifier:
        assert verifier.score([(question.id, [right, "0"])]) == [[1.0, 0.0]]


def test_a_package_that_a_task_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = tmp_path / "lacks"
    lacks.mkdir()
    (lacks / "shoal_lacks.py").write_text("class Lacks:\n    def __init__(self):\n        import no_such_one.x\n")
    installed(lacks, "shoal-lacks", "shoal.tasks", {"lacks": "shoal_lacks:Lacks [more]"})
    monkeypatch.syspath_prepend(lacks)
    with pytest.raises(UserError, match=r"^task 'lacks' needs no-such-one: pip install 'shoal-lacks\[more\]'$"):
        create_task(TaskSpec(name="lacks"))


def test_a_peers_question_of_a_task_that_is_not_here_is_refused_as_that() -> None:
    claim = Candidate(QuestionId("squares", "1", "c0ffee", 7, 0), "hash", ("lagoon", "c0ffee", 1), 0, ("4",))
    *_, verdict = examined(Tasks(TasksConfig()), claim)
    assert isinstance(verdict, Verdict)
    assert verdict.reason == "task"
