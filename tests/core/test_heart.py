"""README's lines of a round are what `Node` does: the same calls with the same values, in the same order."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import question

from shoal.node import Node
from shoal.protocols import UpdateResult

README = Path(__file__).parents[2] / "README.md"


class Recorder:
    """A part of a node whose every method records its call and returns a value that is known by its name."""

    def __init__(self, part: str, calls: list[tuple[str, tuple[Any, ...]]], **returns: Any) -> None:
        self.part, self.calls, self.returns = part, calls, returns

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method == "to_ask":  # the lines are those of a selection that does not choose questions
            raise AttributeError(method)

        def call(*arguments: Any) -> Any:
            self.calls.append((f"{self.part}.{method}", arguments))
            return self.returns.get(method)

        return call


def parts(calls: list[tuple[str, tuple[Any, ...]]]) -> dict[str, Any]:
    tasks = Recorder("tasks", calls, draw=[question(1)])
    policy = Recorder("policy", calls, generate=[()])
    scorer = Recorder("scorer", calls)
    scorer.score = lambda rollouts: calls.append(("score", (rollouts,))) or f"scored {rollouts}"  # type: ignore[attr-defined]
    swarm = Recorder("swarm", calls, receive="received")
    swarm.seed_key = ("key",)  # type: ignore[attr-defined]
    selection = Recorder("selection", calls, to_send="to send", choose=["batch"])
    learner = Recorder("learner", calls, update=UpdateResult())
    return {
        "tasks": tasks, "policy": policy, "scorer": scorer, "swarm": swarm, "selection": selection,
        "learner": learner, "pool": Recorder("pool", calls),
    }  # fmt: skip


def snippet() -> str:
    text = README.read_text(encoding="utf-8")
    [found] = [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "tasks.draw(I)" in block]
    return str(found)


def test_readme_s_lines_are_what_a_node_does() -> None:
    of_readme: list[tuple[str, tuple[Any, ...]]] = []
    names = parts(of_readme)
    names |= {"I": 4, "J": 3, "G": 8, "score": names["scorer"].score, "rollouts": lambda q, c: "rollouts"}
    exec(snippet(), names)

    of_node: list[tuple[str, tuple[Any, ...]]] = []
    node = Node(name="ada", seed=0, I=4, J=3, G=8, **parts(of_node))
    node.rollouts = lambda questions, completions: "rollouts"  # type: ignore[assignment, method-assign, return-value]
    node.act()
    node.learn()

    assert [name for name, _ in of_node] == [name for name, _ in of_readme]
    for (name, arguments), (_, of_the_readme) in zip(of_node, of_readme, strict=True):
        given = [a for a in arguments if not isinstance(a, Recorder)]  # each has a pool of its own
        expected = [a for a in of_the_readme if not isinstance(a, Recorder)]
        assert given[: len(expected)] == expected, name  # a node adds seeds and the round


def test_the_lines_are_few_and_have_the_node_s_names() -> None:
    lines = snippet().strip().splitlines()
    assert len(lines) <= 10
    source = Path(inspect.getfile(Node)).read_text(encoding="utf-8")
    for line in lines:
        target = ast.parse(line).body[0]
        if isinstance(target, ast.Assign):
            [name] = target.targets
            assert isinstance(name, ast.Name)
            assert re.search(rf"\b{name.id}\b", source), name.id


@pytest.mark.slow
def test_the_loop_of_one_s_own_is_fifteen_lines_and_runs() -> None:
    text = (README.parent / "docs/guides/python.md").read_text(encoding="utf-8")
    [found] = [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "make_node" in block]
    assert len([line for line in found.splitlines() if line.strip()]) <= 15
    printed: list[Any] = []
    code = found.replace("range(20)", "range(2)")
    exec(compile(code, "python.md", "exec"), {"print": lambda *values: printed.append(values)})
    assert [(round, name) for round, name, *_ in printed] == [(0, "ada"), (0, "bob"), (1, "ada"), (1, "bob")]
