"""Environments in the shape of TRL's `environment_factory`: an object with `reset(**row) -> str | None`, public methods
that are tools, and `get_reward() -> float`.

    class Shop:
        def reset(self, seed: int) -> str: ...              # what the policy is told; None: the prompt of the row
        def price(self, item: str) -> int:
            \"\"\"The price of an item.\"\"\"
        def get_reward(self) -> float: ...

    environment = Tools(Shop)
    environment.begin(7)                                    # names the tools, too
    environment.answer('{"name": "price", "arguments": {"item": "pear"}}')       # ("12", False)

The policy calls a tool by a JSON object in its turn. A turn without a call is the last.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from json import JSONDecoder
from typing import Any, Final

MAX_TURNS: Final = 8
LONGEST_CALL: Final = 4096
"""Characters of a turn in which a call is looked for."""
ANSWER: Final = "\n\nTo call a function, write one JSON object, and nothing else. When you know the answer, write it."


class Tools:
    """A conversation in which the policy calls the methods of an object."""

    version = "1"
    max_turns = MAX_TURNS

    def __init__(self, make: Callable[..., Any], rows: Sequence[Mapping[str, Any]] = (), **parameters: Any) -> None:
        """`make`: called with `parameters` for each conversation. `rows`: what `reset` gets, one for each conversation,
        with the question in the column `prompt`. If `reset` takes a `seed`, it gets that of the question."""
        self._rows = rows
        self._object = make(**parameters)
        self.name = type(self._object).__name__.lower()
        methods = inspect.getmembers(self._object, inspect.ismethod)
        own = ("reset", "get_reward")
        self._tools = {name: method for name, method in methods if not (name.startswith("_") or name in own)}
        self._takes = inspect.signature(self._object.reset).parameters

    def begin(self, seed: int) -> str:
        row = dict(self._rows[seed % len(self._rows)]) if self._rows else {}
        if "seed" in self._takes:
            row["seed"] = seed
        prompt = row.get("prompt", "")
        prompt = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])  # a chat, whose last message counts
        whole = any(p.kind is p.VAR_KEYWORD for p in self._takes.values())
        said = self._object.reset(**{name: value for name, value in row.items() if whole or name in self._takes})
        return f"{prompt}{said or ''}\n\nFunctions:\n{self._described()}{ANSWER}"

    def answer(self, turn: str) -> tuple[str, bool]:
        call = call_in(turn)
        if call is None:
            return "", True
        name, arguments = call
        if name not in self._tools:
            return f"error: there is no function {name[:100]!r}", False
        try:
            bound = inspect.signature(self._tools[name]).bind(**arguments)
            said = self._tools[name](*bound.args, **bound.kwargs)
        except Exception as error:  # as in TRL: a tool says what is wrong with its arguments
            return f"error: {str(error)[:200]}", False
        return said if isinstance(said, str) else json.dumps(said, default=str), False

    def score(self) -> float:
        reward: Callable[[], float] = getattr(self._object, "get_reward", float)  # without one: float(), which is 0
        return reward()

    def _described(self) -> str:
        lines = []
        for name, tool in self._tools.items():
            taken = {p.name: _kind(p.annotation) for p in inspect.signature(tool).parameters.values()}
            call = json.dumps({"name": name, "arguments": taken})
            lines.append(f"{call}: {(inspect.getdoc(tool) or name).splitlines()[0]}")
        return "\n".join(lines)


def call_in(turn: str) -> tuple[str, dict[str, Any]] | None:
    """The name and the arguments of the call that begins at a turn's first "{"; None if none does. A stranger may have
    written it."""
    start = turn.find("{")
    if start < 0 or len(turn) > LONGEST_CALL:
        return None
    try:
        found, _ = JSONDecoder().raw_decode(turn, start)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    name, arguments = found.get("name"), found.get("arguments", {})
    return (name, arguments) if isinstance(name, str) and isinstance(arguments, dict) else None


def _kind(annotation: Any) -> str:
    return getattr(annotation, "__name__", str(annotation)) if annotation is not inspect.Parameter.empty else "any"
