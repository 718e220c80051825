"""Settings: documented, strict, and the same after a trip through a file."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from shoal.config.load import make_config, read_config, read_run, resumed_config
from shoal.config.policy import EMBEDDED, GEMMA_RATE, PRETRAINED_RATE, RATES, SMALL, default_learning_rate
from shoal.config.sections import Section, settings_of
from shoal.config.settings import Config
from shoal.config.tasks import TaskSpec
from shoal.errors import UserError

SECTIONS = [
    Config,
    TaskSpec,
    *(type(getattr(Config(), name)) for name in ("tasks", "policy", "learner", "round", "evaluation")),
]


def complaint(settings: dict[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        make_config(settings, "one.toml")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("one.toml")
    return message


def test_every_setting_says_what_it_means() -> None:
    for name, field in settings_of(Config) + settings_of(TaskSpec):
        assert field.description, name
        assert field.description.strip() == field.description != "", name
    for section in SECTIONS:
        assert section.__doc__
        assert section.__doc__ != Section.__doc__


def test_defaults_come_back_from_a_file() -> None:
    for config in (Config(), Config().resolved()):
        text = config.to_toml()
        assert make_config(tomllib.loads(text), "file") == config
        assert all(name.rpartition(".")[2] in text for name, _ in settings_of(Config))


numbers = st.floats(1e-9, 1e9)
counts = st.integers(1, 10**9)
values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def some(**settings: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=settings)


specs = st.fixed_dictionaries(
    {"name": st.text()},
    optional={
        "parameters": st.dictionaries(st.text(), values, max_size=3),
        "weight": numbers,
        "answer": st.sampled_from(["whole", "tag"]),
        "system_prompt": st.text(),
    },
)
variations = some(
    seed=st.integers(0, 2**63 - 1),
    rounds=counts,
    threads=st.integers(0, 999),
    tasks=some(suite=st.text(), sources=st.lists(specs, max_size=3), partial_credit=st.booleans()),
    policy=some(
        model=st.lists(st.sampled_from(["guppy"]) | st.text(), min_size=1, max_size=3),
        max_completion_length=counts | st.just("auto"),
        temperature=numbers,
        device=st.text(),
    ),
    learner=some(learning_rate=numbers | st.just("auto"), loss_type=st.sampled_from(["grpo", "dapo"])),
    round=some(local=st.integers(0, 99), peers=st.integers(0, 99)),
    evaluation=some(questions=counts | st.just("auto"), samples=counts | st.just("auto")),
)


@given(variations)
def test_variations_come_back_from_a_file(settings: dict[str, Any]) -> None:
    config = make_config(settings, "given", allow_code=True)
    assert make_config(tomllib.loads(config.to_toml()), "file", allow_code=True) == config
    assert make_config(tomllib.loads(tomli_w.dumps(settings)), "file", allow_code=True) == config


ON_THE_MACHINE = {
    "policy.device",
    "policy.dtype",
    "round.workers",
    "peers.shorten",
    "network.transport",
}
"""Settings whose `auto` depends on the machine, or on the swarm."""


@given(variations)
def test_resolved_leaves_nothing_to_resolve(settings: dict[str, Any]) -> None:
    config = make_config(settings, "given", allow_code=True)
    before = config.model_dump()
    resolved = config.resolved()
    assert config.model_dump() == before
    assert resolved.resolved() == resolved
    assert make_config(tomllib.loads(resolved.to_toml()), "file", allow_code=True).resolved() == resolved
    left = autos(resolved)
    models = {name == "guppy" for name in config.policy.model}
    mixed = {"learner.learning_rate"} if len(models) == 2 else set()
    assert left - ON_THE_MACHINE <= mixed
    for name in dict(settings_of(Config)):
        if name not in autos(config):
            assert value_of(resolved, name) == value_of(config, name)


def value_of(config: BaseModel, name: str) -> Any:
    for part in name.split("."):
        config = getattr(config, part)
    return config


def autos(config: Config) -> set[str]:
    return {name for name, _ in settings_of(Config) if value_of(config, name) == "auto"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (16, 16, 4, 4e-4)),
        ({"tasks": {"suite": "paper"}}, (256, 7, 1, 4e-4)),
        ({"tasks": {"sources": [{"name": "gcd"}]}}, (64, 64, 1, 4e-4)),
        ({"tasks": {"sources": [{"name": "gcd"}] * 40}}, (64, 4, 1, 4e-4)),
        ({"policy": {"model": ["org/model"]}}, (16, 7, 1, 2e-5)),
        ({"policy": {"model": ["org/model"], "lora_r": 8}}, (16, 7, 1, 2e-4)),
        ({"policy": {"model": ["guppy", "org/model"]}}, (16, 7, 1, "auto")),
        (
            {
                "policy": {"max_completion_length": 5},
                "evaluation": {"questions": 6, "samples": 7},
                "learner": {"learning_rate": 0.5},
            },
            (5, 6, 7, 0.5),
        ),
    ],
)
def test_what_auto_means(settings: dict[str, Any], expected: tuple[Any, ...]) -> None:
    config = make_config(settings, "given", allow_code=True).resolved()
    names = "policy.max_completion_length", "evaluation.questions", "evaluation.samples", "learner.learning_rate"
    assert tuple(value_of(config, name) for name in names) == expected


@pytest.mark.parametrize(
    ("settings", "unknown", "nearest"),
    [
        ({"sed": 1}, "sed", "seed"),
        ({"policcy": {}}, "policcy", "policy"),
        ({"round": {"nods": 3}}, "round.nods", "round.nodes"),
        ({"nodes": 3}, "nodes", "round.nodes"),
        ({"policy": {"learning_rates": 1}}, "policy.learning_rates", "learner.learning_rate"),
        ({"tasks": {"sources": [{"name": "gcd", "wight": 2}]}}, "tasks.sources.0.wight", "tasks.sources.0.weight"),
        ({"tasks": {"sources": [{"nmae": "gcd"}]}}, "tasks.sources.0.nmae", "tasks.sources.0.name"),
    ],
)
def test_unknown_settings_are_refused_with_the_nearest(settings: dict[str, Any], unknown: str, nearest: str) -> None:
    assert complaint(settings) == f"one.toml: there is no setting '{unknown}'; did you mean '{nearest}'?"


@pytest.mark.parametrize("name", ["int", "floats", "constrained", "zzz"])
def test_unknown_settings_without_a_likeness(name: str) -> None:
    for settings, full in (({name: 1}, name), ({"round": {name: 1}}, f"round.{name}")):
        assert complaint(settings) == f"one.toml: there is no setting '{full}'; `shoal run --help-all` lists them all"


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"rounds": 0}, "rounds = 0: input should be greater than or equal to 1"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 2**63}, f"seed = {2**63}"),
        ({"seed": "seven"}, "seed = 'seven'"),
        ({"policy": {"temperature": 0}}, "policy.temperature = 0"),
        ({"policy": {"temperature": float("nan")}}, "policy.temperature = nan"),
        ({"policy": {"temperature": float("inf")}}, "policy.temperature = inf"),
        ({"policy": {"model": []}}, "policy.model = []"),
        ({"policy": {"model": "guppy"}}, "policy.model = 'guppy': input should be a valid list"),
        ({"policy": {"max_completion_length": 0}}, "policy.max_completion_length = 0"),
        ({"policy": {"max_completion_length": "long"}}, "policy.max_completion_length = 'long'"),
        ({"learner": {"external_gate": 1.0}}, "there is no setting 'learner.external_gate'; "),
        ({"learner": {"learning_rate": -1.0}}, "learner.learning_rate = -1.0"),
        ({"learner": {"learning_rate": float("nan")}}, "learner.learning_rate = nan"),
        ({"evaluation": {"questions": 0}}, "evaluation.questions = 0"),
        ({"evaluation": {"samples": -2}}, "evaluation.samples = -2"),
        ({"tasks": {"sources": [{"name": "gcd", "score_timeout": 0}]}}, "tasks.sources.0.score_timeout = 0"),
        ({"tasks": 3}, "tasks = 3"),
        ({"tasks": {"sources": [{}]}}, "the setting 'tasks.sources.0.name' is missing"),
        ({"tasks": {"sources": [{"name": "gcd", "weight": 0}]}}, "tasks.sources.0.weight = 0"),
    ],
)
def test_wrong_values_are_named(settings: dict[str, Any], part: str) -> None:
    assert complaint(settings).startswith(f"one.toml: {part}")


@pytest.mark.parametrize("version", [0, 1, 3, "2.0", None])
def test_another_version_is_refused(version: object) -> None:
    message = complaint({"version": version, "new_setting": 1})
    assert "reads version 2" in message
    assert repr(version) in message


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(f"cannot read {tmp_path / 'no.toml'}: No such file")):
        read_config(tmp_path / "no.toml")
    for content in (b"seed = \n", b"\xff\xfe", b"seed = 1\nseed = 2"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(UserError, match=r"bad\.toml is not TOML"):
            read_config(tmp_path / "bad.toml")


def test_configs_share_nothing() -> None:
    changed = Config()
    changed.round.nodes = 9
    changed.policy.model.append("other")
    changed.tasks.sources.append(TaskSpec(name="gcd"))
    assert Config().round.nodes == 4
    assert Config().policy.model == ["guppy"]
    assert Config().tasks.sources == []


def test_assignments_are_checked() -> None:
    config = Config()
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        config.round.nodes = 0
    with pytest.raises(ValueError, match="nods"):
        config.round.nods = 3  # type: ignore[attr-defined]


def test_what_is_said_of_learning_rates_is_so() -> None:
    """Whoever changes one finds here where it is written."""
    adapted = default_learning_rate("some/model", adapters=True)
    guppy, games, eye, other, gemma, adapters = (
        f"{Decimal(f'{rate:g}').normalize():e}" for rate in (*RATES.values(), PRETRAINED_RATE, GEMMA_RATE, adapted)
    )
    assert list(RATES) == ["guppy", "guppy-games", "guppy-eye"]
    assert games == eye
    meaning = " ".join((dict(settings_of(Config))["learner.learning_rate"].description or "").split())
    assert f"auto: {guppy} for guppy and folders with less than {SMALL // 10**6} MB of weights, " in meaning
    assert f"{games} for guppy-games and guppy-eye, {gemma} for Gemma, {other} for other models" in meaning
    page = (Path(__file__).parents[3] / "docs/start/own-model.md").read_text()
    assert f"| `--learning-rate` | {other} for pretrained models ({adapters} with LoRA)" in page
    assert f"Gemma has {gemma}" in page


def test_what_guppy_became_has_its_settings(tmp_path: Path) -> None:
    """A run that begins from a checkpoint of guppy has the name of a folder."""
    folder = Path(__file__).parents[3] / "src/shoal" / EMBEDDED["guppy"]
    assert default_learning_rate(str(folder), adapters=False) == RATES["guppy"]
    config = Config.model_validate({"policy": {"model": [str(folder)]}}).resolved()
    by_name = Config().resolved()
    assert (config.learner, config.evaluation) == (by_name.learner, by_name.evaluation)
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(SMALL)
    assert default_learning_rate(str(tmp_path), adapters=False) == PRETRAINED_RATE


@pytest.mark.parametrize("name", ["", "no/such/folder", "a\0b", "a" * 5000])
def test_a_name_that_is_no_folder_has_the_rate_of_pretrained_models(name: str) -> None:
    assert default_learning_rate(name, adapters=False) == PRETRAINED_RATE


def test_gemma_has_its_own_rate_by_whatever_name_it_comes(tmp_path: Path) -> None:
    for name in ("gemma3-270m", "google/gemma-3-270m-it", "models/gemma-3-270m-q4_k_m.gguf"):
        assert default_learning_rate(name, adapters=False) == GEMMA_RATE
    folder = tmp_path / "node-1"
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(SMALL)
    (folder / "config.json").write_text('{"model_type": "gemma3_text"}')
    assert default_learning_rate(str(folder), adapters=False) == GEMMA_RATE
    for text in ('{"model_type": "llama"}', "[]", "{"):
        (folder / "config.json").write_text(text)
        assert default_learning_rate(str(folder), adapters=False) == PRETRAINED_RATE


def test_settings_stay_few() -> None:
    """A new one needs evidence or a user, and takes the place of another."""
    assert len(settings_of(Config)) <= 54


OLD = """
seed = 3
forgotten = "a"
[learner]
beta = 0.04
[[rewards]]
kind = "function"
function = "my.py:score"
lost = 1
"""


def test_settings_of_a_run_that_this_version_does_not_know_are_ignored_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(OLD)
    for _ in range(2):
        config = make_config(read_run(file), "run", allow_code=True)
    assert (config.seed, config.code) == (3, ["my.py:score"])
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(str(file))
    assert all(name in said for name in ("forgotten", "learner.beta", "rewards.0.lost"))


def test_a_run_is_resumed_only_where_what_is_gone_changed_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[learner]\nbeta = 0.04\n")
    with pytest.raises(UserError, match=r"does not have \(learner\.beta = 0\.04\), so it would learn otherwise"):
        resumed_config(tmp_path, {}, allow_code=False)
    file.write_text("seed = 3\n[learner]\nbeta = 0.0\n")
    assert resumed_config(tmp_path, {}, allow_code=False).seed == 3
