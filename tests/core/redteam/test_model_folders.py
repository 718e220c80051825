"""A folder of a model or of adapters from somebody else: what it may make this machine fetch, import and compute."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal.cli.main import main
from shoal.config.policy import EMBEDDED
from shoal.errors import UserError
from shoal.inside import check_fetched
from shoal.policy.loading import load
from shoal.policy.plain import PlainText

CPU = torch.device("cpu")
GUPPY = Path(str(files("shoal") / EMBEDDED["guppy"]))
EVERY = {"type": "Split", "behavior": "Isolated", "invert": False}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(GUPPY, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def adapters(tmp_path: Path) -> Path:
    made = tmp_path / "adapters"
    made.mkdir()
    (made / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], "base_model_name_or_path": "me/mine"})
    )
    return made


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def with_pattern(folder: Path, pattern: str) -> None:
    """Has the tokenizer cut texts by this pattern first."""
    said = json.loads((folder / "tokenizer.json").read_text())
    steps = [EVERY | {"pattern": {"Regex": pattern}}, said["pre_tokenizer"]]
    change(folder / "tokenizer.json", pre_tokenizer={"type": "Sequence", "pretokenizers": steps})


@pytest.mark.parametrize("name", ["me/mine", "gpt2", "meta-llama/Llama-3.2-1B"])
def test_adapters_make_this_machine_fetch_no_model(
    adapters: Path, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    asked: list[object] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *where, **_: asked.append(where) or [])
    change(adapters / "adapter_config.json", base_model_name_or_path=name)
    with pytest.raises(UserError, match=f"names the model {name} on the Hugging Face Hub.*hf download {name}") as told:
        load(str(adapters), CPU)
    assert "\n" not in str(told.value)
    assert asked == []


def test_a_model_that_the_user_has_fetched_is_taken(adapters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.inside.try_to_load_from_cache", lambda name, file: f"/cache/{name}/{file}")
    check_fetched(adapters, "me/mine")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b|(a+)+$"])
def test_a_pattern_that_searches_for_ever_is_an_error_of_one_line(folder: Path, pattern: str) -> None:
    """The library ends each search after ten million steps, by a panic."""
    with_pattern(folder, pattern)
    plain = PlainText(load(str(folder), CPU).tokenizer)
    assert plain.ids("2 + 2 =")
    began = time.process_time()
    with pytest.raises(UserError, match="cannot read a text") as told:
        plain.ids("a" * 60 + "c")
    assert "\n" not in str(told.value)
    assert time.process_time() - began < 20


def test_a_program_ends_with_one_line_for_such_a_tokenizer(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with_pattern(folder, "(a+)+$")
    assert main(["ask", str(folder), "a" * 60 + "c"]) == 2
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("shoal: ")]
    assert len(said) == 1
    assert "cannot read a text" in said[0]


@pytest.mark.parametrize(
    "pattern",
    ["(a{1,1000}){1,1000}", "a" * 1_000_000, "(" * 5000 + "a" + ")" * 5000, "[", "(?<=a+)b", r"\p{L}{999999}"],
)
def test_a_pattern_of_any_shape_is_read_or_told(folder: Path, pattern: str) -> None:
    """In a process of its own: a crash of the library would end the test, too."""
    with_pattern(folder, pattern)
    words = [sys.executable, "-m", "shoal", "ask", str(folder), "2 + 2 ="]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr
    assert "unknown argument" not in done.stderr


@pytest.mark.parametrize("key", ["tokenizer_file", "vocab_file", "merges_file", "chat_template", "added_tokens_file"])
def test_a_tokenizer_s_settings_name_no_file_elsewhere(folder: Path, tmp_path: Path, key: str) -> None:
    shutil.move(folder / "tokenizer.json", tmp_path / "outside.json")
    change(folder / "tokenizer_config.json", **{key: str(tmp_path / "outside.json")})
    with pytest.raises(UserError, match="has no tokenizer"):
        load(str(folder), CPU)
