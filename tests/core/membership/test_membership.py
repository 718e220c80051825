"""What a membership is made of, before any connection: names, limits and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.admission.limits import AdmissionLimits
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.membership.settings import check_network, public_name, secret_of


def config_of(**network: Any) -> Config:
    return Config.model_validate({"network": network})


def test_strangers_see_no_path_or_address_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    named = {name: public_name(name) for name in ("guppy", "Qwen/Qwen3-0.6B", "my/model", "/a/b", "http://localhost:1")}
    assert named == {"guppy": "guppy", "Qwen/Qwen3-0.6B": "Qwen/Qwen3-0.6B"} | dict.fromkeys(list(named)[2:])


def test_limits_come_from_the_settings() -> None:
    config = Config.model_validate({"policy": {"max_completion_length": 100}})
    assert AdmissionLimits.of(config) == AdmissionLimits(max_bytes=262_144, max_characters=1600)
    long = Config.model_validate({"policy": {"max_completion_length": 4096, "num_generations": 8}})
    assert AdmissionLimits.of(long).max_bytes == 8 * 16 * 4096
    assert AdmissionLimits.of(Config.model_validate({"policy": {"max_completion_length": 10**6}})).max_bytes == 2**20
    assert AdmissionLimits.of(Config()).max_characters == 16 * int(Config().resolved().policy.max_completion_length)


def test_settings_that_cannot_be_used_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    for network, said in (
        ({"name": "a/b"}, "letters"),
        ({"connect": ["relay"]}, "HOST:PORT"),
        ({"connect": ["a:1"], "listen": ["b:1"]}, "not both"),
        ({"tls": "none.pem", "connect": ["tls/a:1"]}, "No such file"),
        ({"secret_file": str(tmp_path / "none")}, "cannot read the secret"),
    ):
        with pytest.raises(UserError, match=said):
            check_network(config_of(**network))
    with pytest.raises(UserError, match="others accept 64 questions of a round"):
        check_network(Config.model_validate({"round": {"questions_per_round": 65}}))
    (tmp_path / "secret").write_text("a secret of ours")
    assert secret_of(config_of(secret_file=str(tmp_path / "secret"))).private
    assert not secret_of(config_of()).private
