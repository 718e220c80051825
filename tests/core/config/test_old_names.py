"""What earlier versions left is read by the names of today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.config.load import config_from_keywords, load_config, resumed_config
from shoal.config.old_names import new_settings
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.learn.weights import make_weight
from shoal.runs.folder import run_metrics

OLD = """
version = 2
[tasks]
suite = "reef"
[[tasks.tasks]]
name = "gcd"
[swarm]
nodes = 2
external = 3
[external]
weight = "none"
gate = 1.5
[network]
swarm = "club"
"""


def test_settings_of_an_older_file_have_their_new_names(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(OLD)
    for config in (load_config(tmp_path / "config.toml"), resumed_config(tmp_path, {"rounds": 3}, False)):
        assert (config.round.nodes, config.round.peers, config.network.name) == (2, 3, "club")
        assert (config.peers.weight, config.peers.gate) == ("none", 1.5)
        assert [spec.name for spec in config.tasks.sources] == ["gcd"]


def test_what_is_said_by_both_names_is_said_by_the_new_one() -> None:
    for settings in (
        {"swarm": {"nodes": 2, "local": 1}, "round": {"nodes": 3}},
        {"round": {"nodes": 3}, "swarm": {"nodes": 2, "local": 1}},
    ):
        assert new_settings(settings) == {"round": {"nodes": 3, "local": 1}}
    assert new_settings({"swarm": "club", "external": 3}) == {"swarm": "club", "external": 3}  # not sections
    assert config_from_keywords({"swarm": "club", "peers": 2}).network.name == "club"


def test_settings_that_others_took_over_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[policy]\nmodel = ["guppy"]\nfactory = "mine:Policy"\n[selection]\ntrust = true\nfactory = ""\n'
        '[peers]\nweight = "none"\nbaseline_shift = 0.0\nlimit = 1.0\n'
    )
    config = load_config(tmp_path / "config.toml", allow_code=True)
    assert (config.policy.model, config.selection.rule) == (["mine:Policy"], "trusting")
    weight = make_weight(config.peers.weight)
    assert (weight.baseline_shift, weight.limit) == (0.0, 1.0)
    with pytest.raises(UserError, match=r"names code that would run here \('mine:Policy'\)"):
        load_config(tmp_path / "config.toml")
    (tmp_path / "config.toml").write_text(
        '[selection]\ntrust = true\nfactory = "mine:Choice"\n[peers]\nbaseline_shift = -0.1\nlimit = 0.5\n'
    )
    config = load_config(tmp_path / "config.toml", allow_code=True)
    assert (config.selection.rule, config.peers.weight) == ("mine:Choice", "topr(limit=0.5)")


@pytest.mark.parametrize("weight", ["topr(limit=-1)", "none(baseline_shift=2)", "topr(limit='x')", "topr(limit=nan)"])
def test_parameters_of_a_weight_that_cannot_be_are_refused(weight: str) -> None:
    with pytest.raises(UserError, match=r"weight .*(cannot be made|write its parameters)"):
        make_weight(weight)


def test_figures_of_an_older_run_have_their_new_names(tmp_path: Path) -> None:
    row = {"round": 1, "node": "ada", "reward/external": 0.5, "gradient/external": 0.25, "external/ess": 1.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert run_metrics(tmp_path) == [
        {"round": 1, "node": "ada", "reward/peers": 0.5, "gradient/peers": 0.25, "peers/ess": 1.0}
    ]


def test_a_setting_that_is_gone_is_read_if_it_says_what_everybody_has(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[network]\nlan = true\npeer_rate = 40.0\ntls_ca = 'ca.pem'\n")
    assert load_config(tmp_path / "config.toml").network.tls == "ca.pem"
    (tmp_path / "config.toml").write_text("[tasks]\nscore_timeout = 9.0\n")
    with pytest.raises(UserError, match=r"'tasks.score_timeout' is gone, .* 2.0; use score_timeout of \[\[tasks"):
        load_config(tmp_path / "config.toml")


def test_a_file_of_the_time_of_stages_is_read_if_it_has_none(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[tasks]\nstages = []\n")
    assert load_config(tmp_path / "config.toml") == Config()
    (tmp_path / "config.toml").write_text('[tasks]\nstages = ["solve"]\n')
    with pytest.raises(UserError, match=r"'tasks.stages' is gone"):
        load_config(tmp_path / "config.toml")
