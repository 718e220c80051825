"""`import shoal` as a library."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import shoal

SMALL: dict[str, Any] = {"nodes": 2, "threads": 1, "workers": 0, "eval_questions": 1, "eval_samples": 1}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_import_is_light_and_names_are_found_when_they_are_used() -> None:
    code = (
        "import shoal, sys; assert not {'torch', 'transformers', 'pandas'} & set(sys.modules); shoal.run; shoal.Config"
    )
    subprocess.run([sys.executable, "-c", code + "; assert 'torch' not in sys.modules"], check=True)
    for name in shoal.__all__:
        assert getattr(shoal, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = shoal.nonsense  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_run_its_frames_and_its_models(here: Path) -> None:
    result = shoal.run(rounds=2, out="one", **SMALL)
    assert result.finished
    assert list(result.metrics["round"]) == [0, 0, 1, 1, 2, 2]
    assert set(result.rollouts.columns) >= {"prompt", "completion", "reward"}
    assert set(result.learned.columns) >= {"maker", "gradient_share", "shortened"}
    assert set(result.models) == {"node-1", "node-2"}
    found = shoal.evaluate(result.models["node-1"], suite="pond", samples=2, questions=1)
    assert 0 <= found.pass_at(2).value <= 1

    more = shoal.run(resume="one", rounds=3)
    assert (more.round, more.finished) == (3, True)
    with pytest.raises(shoal.UserError, match="round cannot change"):
        shoal.run(resume="one", nodes=3)
    with pytest.raises(shoal.UserError, match="its own folder"):
        shoal.run(resume="one", out="two")
    assert "nodes = 2" in (here / "one" / "config.toml").read_text()


@pytest.mark.slow
def test_a_run_that_is_stopped_can_be_resumed() -> None:
    stop = threading.Event()
    stop.set()
    result = shoal.run(rounds=2, out="one", stop=stop, **SMALL)
    assert (result.round, result.finished) == (0, False)
    assert shoal.run(resume="one").finished


def test_settings_and_a_config_are_one_or_the_other() -> None:
    with pytest.raises(shoal.UserError, match="not two of them"):
        shoal.run(shoal.Config(rounds=1), rounds=3)
    with pytest.raises(shoal.UserError, match="not both"):
        shoal.evaluate("guppy", shoal.Config(), samples=2)
    with pytest.raises(shoal.UserError, match=r"did you mean 'learner\.learning_rate'"):
        shoal.run(lerning_rate=1)


@pytest.mark.slow
def test_files_from_somebody_else_run_no_code(here: Path) -> None:
    (here / "evil.py").write_text("open('owned', 'w')\nclass S: pass\n")
    (here / "evil.toml").write_text('selection.rule = "evil:S"\n')
    with pytest.raises(shoal.UserError, match="names code"):
        shoal.load_config("evil.toml")
    shoal.run(rounds=1, out="one", **SMALL)
    config = here / "one" / "config.toml"
    before = 'rule = "fair"'
    assert before in config.read_text()
    config.write_text(config.read_text().replace(before, 'rule = "evil:S"'))
    with pytest.raises(shoal.UserError, match="names code"):
        shoal.run(resume="one", rounds=2)
    assert not (here / "owned").exists()


def test_parts_of_one_s_own_are_checked(here: Path) -> None:
    (here / "bare.py").write_text("class Dumb:\n    def __init__(self, *a): pass\nclass Bare: pass\n")
    for flag, name, said in (
        ("model", "bare:Dumb", "policy 'bare:Dumb' lacks generate, save, trouble"),
        (
            "selection",
            "bare.py:Dumb",
            "selection 'bare.py:Dumb' lacks choose, load, on_update, save, to_send",
        ),
        ("learner", "bare:Dumb", "learner 'bare:Dumb' lacks load, save, update"),
        ("selection", "bare:Bare", "selection 'bare:Bare' cannot be made: "),
        ("selection", "bare:None_", "bare has no 'None_'"),
    ):
        with pytest.raises(shoal.UserError, match=said):
            shoal.run(rounds=1, out="never", **{**SMALL, flag: name})
    assert not (here / "never").exists()


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_told(here: Path) -> None:
    (here / "bad.py").write_text(
        "from shoal.learn.losses.base import Average, TokenLosses\n"
        "class Nan:\n"
        "    average = Average.token\n"
        "    def token_losses(self, tokens):\n"
        "        return TokenLosses(tokens.logps_T * float('nan'))\n"
    )
    found = shoal.run(rounds=2, out="one", loss_type="bad:Nan", **SMALL)
    [warning] = found.warnings
    assert warning.startswith("steps were skipped, since a loss or a gradient was not finite: node-1 ")


def test_a_swarm_s_name_is_checked_before_anything_is_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(here / "home"))
    with pytest.raises(shoal.UserError, match="a/b"):
        shoal.join(network={"name": "a/b"}, out="one")
    assert not (here / "one").exists()
