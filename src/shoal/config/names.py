"""The names of settings outside a configuration file: flags, keyword arguments, and what old names are called now."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic.fields import FieldInfo

from shoal.config.data import data_settings
from shoal.config.own_code import name_of_function
from shoal.config.section import settings_of
from shoal.config.settings import Config

SHORT = {
    "policy.factory": "policy",
    "learner.factory": "learner",
    "selection.factory": "selection",
    "external.weight": "external_weight",
    "external.gate": "external_gate",
    "external.baseline_shift": "external_baseline_shift",
    "external.limit": "external_limit",
    "evaluation.every": "eval_every",
    "evaluation.questions": "eval_questions",
    "evaluation.samples": "eval_samples",
}
"""Short names that are not the last part of the dotted name."""

RENAMED = {
    "sampling": "selection",
    "learner.external_weight": "external.weight",
    "learner.external_gate": "external.gate",
    "learner.external_baseline_shift": "external.baseline_shift",
    "learner.external_limit": "external.limit",
    "swarm.asked": "swarm.questions_per_round",
}
"""Settings of shoal 0.1 under another name."""

REMOVED = {
    "learner.advantage": "advantages are those of the group",
    "learner.balance": "no study supported it",
    "learner.gamma": "there is no critic",
    "learner.lam": "there is no critic",
    "learner.vf_coef": "there is no critic",
    "learner.cliprange_value": "there is no critic",
    "learner.critic_learning_rate": "there is no critic",
    "learner.num_minibatches": "an update is one step for each of num_iterations",
    "learner.weight_decay": "it is 0",
    "learner.max_grad_norm": "it is 1.0",
    "learner.gradient_checkpointing": "it is used when memory is short",
    "policy.lora_alpha": "it is 32",
    "policy.lora_dropout": "it is 0",
    "policy.lora_target_modules": "it is all-linear",
    "policy.endpoint_timeout": "it is 120 seconds",
    "tasks.held_out": "it is 0.2, so that all nodes hold out the same questions",
    "swarm.stacked": "take policy.engine = 'vllm' on a GPU",
    "swarm.pool_size": "it is 256",
    "swarm.max_age": "it is 4 rounds",
    "swarm.upload": "see examples/own_selection.py",
    "swarm.send": "see examples/own_selection.py",
    "selection.learnability": "see examples/own_selection.py",
    "selection.max_per_peer": "makers take turns",
    "selection.max_per_question": "no study supported it",
    "selection.drop_duplicates": "no study supported it",
    "selection.keep_solved": "no study supported it",
    "selection.adapt": "no study supported it",
    "admission": "network.peer_rate is left; the others are constants",
    "network.neighbours": "it is 8 at the start",
    "network.share_logprobs": "log-probabilities are not shared",
    "policy.vllm_gpu_memory_utilization": "it is 0.3",
}
"""Settings of shoal 0.1 that are gone, and why or what instead."""


def short_names(names: list[str]) -> dict[str, str]:
    """The short name of each dotted name that has one. A last part that several names share is not a short name."""
    leaves = Counter(name.rpartition(".")[2] for name in names)
    short = {name: SHORT.get(name, name.rpartition(".")[2]) for name in names}
    return {name: leaf for name, leaf in short.items() if name in SHORT or leaves[leaf] == 1}


def flag_of(name: str) -> str:
    """The flag of a setting by its dotted name, `--nodes` for `swarm.nodes`."""
    short = short_names([setting for setting, _ in settings_of(Config)])
    return "--" + short.get(name, name).replace("_", "-")


def from_keywords(settings: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments as nested settings: short names, and sections as dictionaries.

    from_keywords({"learning_rate": 1e-4, "evaluation": {"every": 5}, "task": "my:Task"})
    from_keywords({"data": "questions.jsonl", "rewards": [my_rewards.score]})
    """
    fields: dict[str, FieldInfo] = dict(settings_of(Config))
    dotted = {short: name for name, short in short_names(list(fields)).items()}
    nested: dict[str, Any] = {}
    for keyword, value in settings.items():
        if keyword == "task":
            _tasks(nested).extend({"name": name} for name in _listed(value))
        elif keyword == "data":
            _tasks(nested).extend(map(data_settings, _listed(value)))
        elif keyword == "rewards":
            nested["rewards"] = [_reward(one) for one in _listed(value)]
        elif keyword == "reward":
            nested["rewards"] = [{"kind": "function", "function": name} for name in _listed(value)]
        elif isinstance(value, dict) or keyword not in dotted:
            nested[keyword] = {**nested.get(keyword, {}), **value} if isinstance(value, dict) else value
        else:
            name = dotted[keyword]
            section, _, leaf = name.rpartition(".")
            place = nested.setdefault(section, {}) if section else nested
            place[leaf] = _listed(value) if isinstance(fields[name].default, list) else value
    return nested


def old_name(where: list[str]) -> str:
    """What happened to a renamed or removed setting; empty for other names."""
    name = ".".join(where)
    if name in REMOVED:
        return f"it was removed: {REMOVED[name]}"
    for old, new in RENAMED.items():
        if name == old or name.startswith(f"{old}."):
            return f"it is called '{new + name[len(old) :]}' now"
    return ""


def _tasks(nested: dict[str, Any]) -> list[Any]:
    tasks: list[Any] = nested.setdefault("tasks", {}).setdefault("tasks", [])
    return tasks


def _reward(value: Any) -> Any:
    """An entry of `[[rewards]]`: a function, its name, or the entry itself."""
    if callable(value):
        value = name_of_function(value)
    return {"kind": "function", "function": value} if isinstance(value, str) else value


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
