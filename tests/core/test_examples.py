"""The examples run as they stand, but for fewer rounds."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import shoal.api
from shoal.config.load import config_from_keywords
from shoal.runs.data import data_lines
from shoal.tasks import Tasks

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def in_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs go into a folder of their own, and the modules of the examples are found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


SHARING = {"ability.py", "agreement.py", "asking.py", "ftis.py", "hacpo.py", "prioritised.py"}


def test_there_is_a_test_for_each() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "swarm_loop.py",
        "trl_swarm.py",
        "flow_swarm.py",
        "textarena_games.py",  # tests/extras/test_textarena.py
        "distillation.py",  # tests/core/learn/test_distillation.py
        *SHARING,  # tests/core/learn/test_sharing.py
        "lookup.py",  # tests/extras/test_tools.py
        "school_files.py",
        *(f"{name}.py" for name in OWN),
    }


def test_the_whole_algorithm_is_a_hundred_lines_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    path = EXAMPLES / "swarm_loop.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 100
    module = runpy.run_path(str(path), run_name="swarm_loop")
    module["main"].__globals__["ROUNDS"] = 2
    module["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert [line[:8] for line in lines[:2]] == ["round  1", "round  2"]


def test_the_files_of_a_teacher_are_read(tmp_path: Path) -> None:
    runpy.run_path(str(EXAMPLES / "school_files.py"))["main"](tmp_path / "school")
    said = []
    for name in ("conversions.xlsx", "shop.csv", "reading.json"):
        config = config_from_keywords({"data": str(tmp_path / "school" / name)})
        said += [line for line in data_lines(Tasks(config.tasks)) if not line.startswith(" ")]
    assert "150 rows, scored by number" in said[0]
    assert "read as cp1252, separated by ;, decimal comma, scored by number" in said[1]
    assert "120 rows, scored by text" in said[2]


def test_a_trainer_of_trl_trains(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("trl")
    monkeypatch.setenv("SHOAL_HOME", "home")
    module = runpy.run_path(str(EXAMPLES / "trl_swarm.py"), run_name="trl_swarm")
    module["main"].__globals__["STEPS"] = 2
    assert [row["step"] for row in module["main"](["127.0.0.1:1"])] == [1, 2]
    assert "step   2  own mean reward 0." in capsys.readouterr().out


OWN = ("own_task", "own_environment", "own_reward", "own_selection", "own_policy")


@pytest.mark.parametrize("name", OWN)
def test_what_is_one_s_own_runs_as_a_script_and_by_its_flag(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[dict[str, Any]] = []
    run = shoal.api.run

    def shorter(**settings: Any) -> shoal.api.RunResult:
        given.append(settings)
        small = {"rounds": 2, "nodes": 2, "progress": False, "threads": 1, "workers": 0, "out": name}
        result = run(**{**settings, **small, "eval_questions": 1, "eval_samples": 1})
        assert result.finished
        assert len(result.metrics) == 2 * 3
        return result

    monkeypatch.setattr(shoal.api, "run", shorter)
    for module in OWN:
        monkeypatch.delitem(sys.modules, module, raising=False)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out
    [settings] = given
    flag = name.removeprefix("own_").replace("environment", "task").replace("policy", "model")
    assert settings[flag].startswith(f"{name}:"), "the flag of the same name takes the same"
    assert f"--{flag} {settings[flag]}" in (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")


def test_two_flow_models_share_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, flow = importlib.import_module("torch"), importlib.import_module("flow_swarm")
    right = (flow.WANTED_QP * 255).to(torch.uint8)
    conditions = torch.arange(flow.CONDITIONS)
    assert flow.verify(right, conditions).all()
    assert not flow.verify(right, conditions.roll(1)).any()
    blank = flow.pretrained
    monkeypatch.setattr(flow, "pretrained", lambda width, seed: blank(width, seed, steps=2))
    curves = flow.run("4/4", 1, rounds=1)
    assert "nan" not in flow.table({"own only 8/0": [curves], "4/4": [curves]})  # one seed has no interval
    assert {kind: [len(curve) for curve in found] for kind, found in curves.items()} == {
        "asked": [1, 1],
        "held out": [1, 1],
    }
    table = flow.table({arm: [curves, curves] for arm in flow.ARMS})
    assert table.count("\n") == 1 + len(flow.ARMS)


def test_diffusion_nft_goes_towards_what_is_right() -> None:
    """Of a group with one right and one wrong picture, the gradient is that of the loss by hand, in float64."""
    torch, flow = importlib.import_module("torch"), importlib.import_module("flow_swarm")
    torch.manual_seed(0)
    new, old, velocity = torch.randn(3, 2, 4, dtype=torch.float64)
    new.requires_grad_()
    right = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    flow.loss(new, old, velocity, right).backward()
    by_hand = torch.stack([2 * (new[0] - velocity[0]), -2 * (2 * old[1] - new[1] - velocity[1])]) / 8
    assert torch.allclose(new.grad, by_hand.detach(), rtol=1e-12, atol=0)
