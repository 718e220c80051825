"""The names of settings outside a configuration file: flags and keyword arguments."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from shoal.config.own_code import name_of_function
from shoal.config.sections import settings_of
from shoal.config.settings import Config
from shoal.config.tasks import DATA
from shoal.errors import UserError

SHORT = {
    "learner.factory": "learner",
    "selection.rule": "selection",
    "peers.weight": "peer_weight",
    "network.name": "swarm",
    "tasks.sources": "tasks",
    "evaluation.every": "eval_every",
    "evaluation.questions": "eval_questions",
    "evaluation.samples": "eval_samples",
}
"""Short names that are not the last part of the dotted name."""


def short_names(names: list[str]) -> dict[str, str]:
    """The short name of each dotted name that has one. A last part that several names share is not a short name."""
    leaves = Counter(name.rpartition(".")[2] for name in names)
    short = {name: SHORT.get(name, name.rpartition(".")[2]) for name in names}
    return {name: leaf for name, leaf in short.items() if name in SHORT or leaves[leaf] == 1}


def from_keywords(settings: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments as nested settings: short or dotted names, and sections as dictionaries.

    from_keywords({"learning_rate": 1e-4, "evaluation": {"every": 5}, "task": "my:Task"})
    from_keywords({"data": "questions.jsonl", "rewards": [right, short], "reward_weights": [1.0, 0.2]})
    """
    fields: dict[str, FieldInfo] = dict(settings_of(Config))
    dotted = {short: name for name, short in short_names(list(fields)).items()} | {name: name for name in fields}
    nested: dict[str, Any] = {}
    weights: list[Any] = []
    for keyword, value in settings.items():
        if keyword == "task":
            _sources(nested).extend({"name": name} for name in _listed(value))
        elif keyword == "data":
            _sources(nested).extend(map(data_settings, _listed(value)))
        elif keyword in ("rewards", "reward"):
            nested["rewards"] = [_reward(one) for one in _listed(value)]
        elif keyword == "reward_weights":
            weights = _listed(value)
        elif isinstance(value, dict) or keyword not in dotted:
            nested[keyword] = {**nested.get(keyword, {}), **value} if isinstance(value, dict) else value
        else:
            name = dotted[keyword]
            section, _, leaf = name.rpartition(".")
            place = nested.setdefault(section, {}) if section else nested
            place[leaf] = _listed(value) if isinstance(fields[name].default, list) else value
    if weights:
        rewards = nested.get("rewards", [])
        if len(rewards) != len(weights):
            raise UserError(f"reward_weights has {len(weights)} numbers for {len(rewards)} rewards: give one for each")
        nested["rewards"] = [{**one, "weight": weight} for one, weight in zip(rewards, weights, strict=True)]
    return nested


def _sources(nested: dict[str, Any]) -> list[Any]:
    sources: list[Any] = nested.setdefault("tasks", {}).setdefault("sources", [])
    return sources


def _reward(value: Any) -> Any:
    """An entry of `[[rewards]]`: a function, its name, or the entry itself."""
    if callable(value):
        value = name_of_function(value)
    return {"kind": "function", "function": value} if isinstance(value, str) else value


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def data_settings(value: object) -> dict[str, Any]:
    """The task of a data set. `value`: path or name, NAME=VALUE behind commas; or parameters. Raises `UserError`."""
    match value:
        case str() | Path():
            path, *rest = re.split(r"\s*,\s*(?=\w+\s*=)", str(value))
            return {
                "name": DATA,
                "parameters": {"path": path, **dict(re.split(r"\s*=\s*", p, maxsplit=1) for p in rest)},
            }
        case Mapping():
            return {"name": DATA, "parameters": dict(value)}
    raise UserError(f"data = {type(value).__name__}: give a path, a name on the Hub, rows or a datasets.Dataset")
