"""A mistyped model is noticed at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch

from shoal.errors import UserError
from shoal.policy.named import check_exists


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

    check_exists("runs/oen")  # it may be on the Hub
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"cannot be loaded: no folder of this name here.* did you mean 'runs/one'[?]"):
        load("runs/oen", torch.device("cpu"))


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
