"""A mistyped model is noticed at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx2
import huggingface_hub
import pytest
import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled

from shoal.errors import UserError
from shoal.policy.named import PATIENCE, check_exists


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs" / "one" / "node-1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["guppy", "smollm2", "http://127.0.0.1:1/v1", "runs/one", "./runs/one/node-1"])
def test_what_there_is_passes(name: str) -> None:
    check_exists(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gupy", "did you mean 'guppy'?"),
        ("runs/one/node-2", "is no model: .* did you mean 'runs/one/node-1'?"),
        ("./rnus/one/node-1", "did you mean 'runs'?"),
        ("/nowhere/at/all", "is no model: give a Hugging Face name, a model folder or a .gguf file$"),
        ("one.gguf", "there is no file 'one.gguf'"),
    ],
)
def test_a_mistake_is_said_with_what_is_near(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said.replace("?", "[?]")):
        check_exists(name)


def test_loading_says_what_the_hub_does_not_have_and_what_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.policy.loading import load

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"cannot be loaded: no folder of this name here.* did you mean 'runs/one'[?]"):
        load("runs/oen", torch.device("cpu"))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            httpx2.ConnectError("no network"),
            "cannot be reached: check the name and the network; did you mean",
        ),
        (OfflineModeIsEnabled("offline"), "is not asked"),
        (HFValidationError("no name"), "shows none of this name"),
    ],
)
def test_what_the_hub_does_not_give_is_said_before_anything_is_fetched(
    answer: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def ask(self: HfApi, name: str, timeout: float) -> None:
        asked.append(timeout)
        raise answer

    monkeypatch.setattr(HfApi, "model_info", ask)
    with pytest.raises(UserError, match=re.escape(said)):
        check_exists("runs/oen")
    assert asked == [PATIENCE]  # seconds, once


def test_a_mirror_that_only_has_files_is_left_to_the_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HfApi, "model_info", lambda self, name, timeout: None)
    check_exists("some/model")


@pytest.mark.parametrize("command", ["ask", "eval"])
def test_the_commands_say_so_before_anything_heavy_is_imported(command: str) -> None:
    program = (
        "import sys\nfrom shoal.cli.main import main\n"
        f"assert main([{command!r}, './nope', *(['hi'] if {command!r} == 'ask' else [])]) == 2\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert done.stderr.startswith("shoal: './nope' is no model")
