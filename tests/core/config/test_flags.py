"""Settings as flags: all of them, in every spelling, and what is said to a slip of the fingers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from shoal.cli.flags import COMMON, NOT_FLAGS, Parser, add_own_code, add_settings, config_of, given_settings
from shoal.cli.main import COMMANDS, main
from shoal.config.load import config_from_keywords, make_config, merged
from shoal.config.names import SHORT, from_keywords
from shoal.config.sections import settings_of
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.tasks.suites import specs_of

FLAGS = [(name, field) for name, field in settings_of(Config) if name not in NOT_FLAGS]


CHOSEN: dict[str, tuple[str, Any]] = {
    "round.on": ("ray", "ray"),
    "network.transport": ("place", "place"),
    "selection.rule": ("my:Selection", "my:Selection"),
    "peers.shorten": ("off", "off"),
    "tasks.answer": ("boxed", "boxed"),
    "tasks.partial_credit": ("true", True),
    "report_to": ("wandb", ["wandb"]),
}
"""Values that are not the default, as text and as they are, where `another` finds none."""
RUN_SETTINGS = [n for names in COMMON.values() for n in names.split() if not n.startswith("network.")]


def settings(*argv: str) -> dict[str, Any]:
    parser = Parser(prog="shoal")
    add_settings(parser)
    return given_settings(parser.parse(argv))


def value_of(config: Any, name: str) -> Any:
    for part in name.split("."):
        config = getattr(config, part)
    return config


def another(field: FieldInfo) -> tuple[str, Any]:
    """A value that is not the default, as text and as it is."""
    kind = field.annotation
    if get_origin(kind) is Literal:
        other = next(choice for choice in get_args(kind) if choice != field.default)
        return str(other), other
    if get_origin(kind) is list:
        return "other", ["other"]
    if kind is bool or "bool" in str(kind):
        value = field.default is not True
        return str(value).lower(), value
    if kind is str:
        return "other", "other"
    return ("0.5", 0.5) if kind is float or "float" in str(kind) else ("3", 3)


@pytest.mark.parametrize(("name", "field"), FLAGS, ids=[name for name, _ in FLAGS])
def test_every_setting_has_its_flags(name: str, field: FieldInfo) -> None:
    text, value = CHOSEN.get(name) or another(field)
    leaf = SHORT.get(name, name.rpartition(".")[2])
    for flag in {f"--{name}", f"--{leaf}", f"--{name}".replace("_", "-"), f"--{leaf}".replace("_", "-")}:
        for argv in ([flag, text], [f"{flag}={text}"]):
            config = make_config(settings(*argv), "the command line", allow_code=True)
            assert value_of(config, name) == value != value_of(Config(), name)
            others = [other for other, _ in FLAGS if other != name]
            assert all(value_of(config, other) == value_of(Config(), other) for other in others)


def test_what_is_not_given_is_not_there() -> None:
    assert settings() == {}
    assert settings("--nodes", "2", "--seed", "1") == {"round": {"nodes": "2"}, "seed": "1"}


def test_models_add_up() -> None:
    config = make_config(settings("--model", "a", "--model=b", "--policy.model", "c"), "the command line")
    assert config.policy.model == ["a", "b", "c"]


def test_a_negative_number_is_a_value() -> None:
    with pytest.raises(UserError, match="--seed -1"):
        make_config(settings("--seed", "-1"), "the command line")


nested = st.recursive(
    st.integers() | st.text(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, min_size=1), max_leaves=6
)
tables = st.dictionaries(st.sampled_from("abc"), nested, max_size=3)


@given(tables, tables)
def test_what_is_above_wins_and_the_rest_stays(below: dict[str, Any], above: dict[str, Any]) -> None:
    def leaves(table: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
        if not isinstance(table, dict):
            return {path: table}
        return {key: value for name, inner in table.items() for key, value in leaves(inner, (*path, name)).items()}

    copies = repr((below, above))
    result = leaves(merged(below, above))
    assert repr((below, above)) == copies
    assert leaves(above).items() <= result.items()
    for path, value in leaves(below).items():
        hidden = any(path[: len(other)] == other or other[: len(path)] == path for other in leaves(above))
        assert hidden or result[path] == value


def test_own_tasks_and_rewards() -> None:
    parser = Parser(prog="shoal")
    add_own_code(parser)
    given = given_settings(parser.parse(["--task", "chain_sum", "--task", "my:Task", "--reward", "my:score"]))
    assert given == {
        "tasks": {"sources": [{"name": "chain_sum"}, {"name": "my:Task"}]},
        "rewards": [{"kind": "function", "function": "my:score"}],
    }
    assert from_keywords({"task": ["chain_sum", "my:Task"], "reward": "my:score"}) == given


def test_a_suite_replaces_the_tasks_of_a_file_and_stands_beside_no_others(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('version = 2\ntasks.sources = [{ name = "gcd" }]\n')
    for flags, names in ({}, ["gcd"]), ({"tasks": {"suite": "reef", "only": ["products"]}}, ["products"]):
        assert [spec.name for spec in specs_of(config_of(file, flags, False).tasks)] == names
    parser = Parser(prog="shoal")
    add_settings(parser)
    add_own_code(parser)
    with pytest.raises(UserError, match="--suite is about the tasks of a suite"):
        given_settings(parser.parse(["--task", "gcd", "--suite", "reef"]))


def test_what_holds_below_a_file_gives_way_to_it(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    for text, rounds in ("seed = 1", 7), ("rounds = 3", 3):
        file.write_text(f"version = 2\n{text}\n")
        assert config_of(file, {}, False, below={"rounds": 7}).rounds == rounds


def test_keywords_are_short_names_or_sections() -> None:
    given = {"rounds": 3, "model": "guppy", "eval_every": 5, "learning_rate": 0.1, "evaluation": {"samples": 2}}
    assert from_keywords(given) == {
        "rounds": 3,
        "policy": {"model": ["guppy"]},
        "evaluation": {"every": 5, "samples": 2},
        "learner": {"learning_rate": 0.1},
    }
    with pytest.raises(UserError, match=r"no setting 'lerning_rate'; did you mean 'learner\.learning_rate'"):
        config_from_keywords({"lerning_rate": 1})


def test_the_help_has_the_common_settings_and_help_all_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 80, "two screens"
    assert all(f"--{SHORT.get(n, n.rpartition('.')[2])}".replace("_", "-") in text for n in RUN_SETTINGS)
    assert "--scale-rewards" not in text
    with pytest.raises(SystemExit):
        main(["run", "--help-all"])
    whole = "".join(capsys.readouterr().out.split())
    for name, field in FLAGS:
        if not name.startswith("network.") and name != "evaluation.judges":
            assert f"--{SHORT.get(name, name.rpartition('.')[2])}".replace("_", "-") in whole
            assert "".join((field.description or "").split()) in whole, name


def test_bare_shoal_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(f"    {name} " in text for name in COMMANDS)
    assert "begin here" in text


def test_one_leaf_name_in_two_sections_has_no_short_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    twice = [*settings_of(Config), ("swarm.device", dict(FLAGS)["policy.device"])]
    monkeypatch.setattr("shoal.cli.flags.settings_of", lambda _: twice)
    add_settings(parser)
    assert "--device" not in parser._option_string_actions
    assert {"--policy.device", "--swarm.device"} <= parser._option_string_actions.keys()


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["run", "--nods", "3"], "unknown argument '--nods'; did you mean '--nodes'? (`shoal run --help`)"),
        (["run", "--num_generation=3"], "unknown argument '--num-generation=3'; did you mean '--num-generations'?"),
        (["run", "--polcy.model", "x"], "unknown argument '--polcy.model'; did you mean '--policy.model'?"),
        (["eval", "guppy", "--sample", "3"], "unknown argument '--sample'; did you mean '--samples'?"),
        (["eval", "guppy", "--nodes", "3"], "unknown argument '--nodes'"),
        (["run", "--xyzzy"], "unknown argument '--xyzzy' ("),
        (["run", "--round", "3"], "unknown argument '--round'; did you mean '--rounds'?"),
        (["run", "--rounds"], "argument --rounds: expected one argument (`shoal run --help`)"),
        (["run", "--quiet=3"], "argument --quiet: ignored explicit argument '3' (`shoal run --help`)"),
        (["eval"], "the following arguments are required: MODEL (`shoal eval --help`)"),
        (["rnu"], "there is no command 'rnu'; did you mean 'run'? (`shoal --help`)"),
        (["--quiet"], "the following arguments are required: COMMAND"),
    ],
)
def test_unknown_arguments(
    argv: list[str], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(f"shoal: {line}")
    assert not list(tmp_path.iterdir())
