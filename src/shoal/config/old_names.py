"""What earlier versions of shoal called settings and figures, for the files that they left.

new_settings({"swarm": {"external": 2}})                       # {"round": {"peers": 2}}
new_figures({"round": 3, "reward/external": 0.5})              # {"round": 3, "reward/peers": 0.5}
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

SECTIONS: Final = {"external": "peers", "swarm": "round"}
"""Sections of `config.toml`."""
SETTINGS: Final = {
    ("round", "external"): "peers",
    ("network", "swarm"): "name",
    ("network", "tls_ca"): "tls",
    ("tasks", "tasks"): "sources",
    ("selection", "factory"): "rule",
}
"""Settings of a section, by its new name."""
WEIGHT: Final = {"baseline_shift": -0.1, "limit": 1.0}
"""Settings of `[peers]` that are parameters of its weight now, and what they are if nothing is said."""
GONE: Final[dict[tuple[str, str], Any]] = {
    ("learner", "epsilon"): 0.2,
    ("learner", "epsilon_high"): 0.28,
    ("learner", "multi_objective_aggregation"): "sum_then_normalize",
    ("learner", "mask_truncated_completions"): False,
    ("learner", "tokens_per_micro_batch"): "auto",
    ("learner", "fsdp"): False,
    ("policy", "endpoint_requests"): 4,
    ("network", "peer_rate"): 40.0,
    ("network", "lan"): True,
    ("network", "tls_certificate"): "",
    ("network", "tls_key"): "",
    ("tasks", "score_timeout"): 2.0,
    ("tasks", "stages"): [],
    ("experiment", "proposers"): 0,
}
"""Settings that there are no more, with what shoal does today. Files that say so are read."""
INSTEAD: Final = {
    ("learner", "epsilon"): "learner.loss_type with its parameters, such as gspo(epsilon=1e-3)",
    ("learner", "epsilon_high"): "learner.loss_type with its parameters, such as gspo(epsilon_high=1e-3)",
    ("network", "lan"): "network.listen with an address of this machine alone, such as 127.0.0.1:0",
    ("network", "tls_certificate"): "network.tls with a folder",
    ("network", "tls_key"): "network.tls with a folder",
    ("tasks", "score_timeout"): "score_timeout of [[tasks.sources]]",
}
"""What does the same for those who want something else."""
FIGURES: Final = {
    "reward/external": "reward/peers",
    "gradient/external": "gradient/peers",
    **{f"external/{figure}": f"peers/{figure}" for figure in ("weight", "ess", "gated", "nll_gap")},
}
"""Columns of `metrics.jsonl`."""


def new_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file, not yet checked, by their names of today. What a file says by both names is said by the
    new one."""
    found: dict[str, Any] = {}
    for name, section in settings.items():
        now = SECTIONS.get(name, name) if isinstance(section, dict) else name
        if isinstance(section, dict):
            renamed = {
                SETTINGS.get((now, setting), setting): value
                for setting, value in section.items()
                if (now, setting) not in GONE or value != GONE[now, setting]
            }
            other = found[now] if isinstance(found.get(now), dict) else {}
            section = {**other, **renamed} if name == now else {**renamed, **other}
        found[now] = section
    for name, change in (("policy", _policy), ("selection", _selection), ("peers", _peers)):
        if isinstance(section := found.get(name), dict):
            found[name] = change(section)
    return found


def _policy(section: dict[str, Any]) -> dict[str, Any]:
    """A policy of one's own is a model."""
    factory = section.pop("factory", "")
    return section | {"model": [factory]} if factory else section


def _selection(section: dict[str, Any]) -> dict[str, Any]:
    """Trust, a selection of one's own, or none of both is a rule."""
    trust = section.pop("trust", False)
    if section.get("rule") == "":
        del section["rule"]
    return {"rule": "trusting"} | section if trust else section


def _peers(section: dict[str, Any]) -> dict[str, Any]:
    """The shift and the limit are parameters of the weight, which are left out if they are the usual ones."""
    said = {name: section.pop(name) for name in WEIGHT if isinstance(section.get(name), int | float)}
    name, _, parameters = str(section.get("weight", "topr")).partition("(")
    changed = [f"{key}={value!r}" for key, value in said.items() if value != WEIGHT[key]]
    parameters = ", ".join(filter(None, (parameters.removesuffix(")"), *changed)))
    return section | {"weight": f"{name}({parameters})"} if changed else section


def gone(where: Sequence[str]) -> str:
    """What to do about a setting, given by section and name, that there is no more; empty for others."""
    name = tuple(where)
    if name not in GONE:
        return ""
    instead = f"; use {INSTEAD[name]}" if name in INSTEAD else ""
    return f"the setting '{'.'.join(where)}' is gone, and everybody has {GONE[name]!r}{instead}"


def new_figures(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of metrics by the names of today."""
    return {FIGURES.get(name, name): value for name, value in row.items()}
