"""Checks of other libraries that shoal relies on: each fails here when a new version loosens it."""

from __future__ import annotations

import json
import pickle
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
import yaml

from shoal.errors import UserError
from shoal.policy.loading import load

CPU = torch.device("cpu")
FIRST = {"peft": (0, 20), "datasets": (4,), "torch": (2, 6), "transformers": (5, 0)}
"""The first versions with the checks below: 0.20 imports only listed modules, 4 runs no scripts of data sets, and 2.6
reads weights without running what a pickle says."""
SETTINGS = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}


class Ran:
    """Unpickled, it leaves a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that leaves a file when it is imported."""
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "planted"
    assert not (tmp_path / "ran").exists(), "code of strangers ran"
    sys.modules.pop("planted", None)


def test_lower_bounds_have_the_checks() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    for name, first in FIRST.items():
        [bound] = [match[1] for each in asked if (match := re.fullmatch(rf"{name}>=([\d.]+)[^\[]*", each))]
        assert tuple(map(int, bound.split("."))) >= first, name


@pytest.mark.parametrize(
    "more",
    [
        {"megatron_config": {"a": 1}, "megatron_core": "planted"},
        {"megatron_config": {"a": 1}, "megatron_core": "planted.core"},
        {"auto_mapping": {"base_model_class": "Model", "parent_library": "planted"}},
        {"eva_config": {"rho": 2}, "runtime_config": {"planted": 1}},
    ],
)
def test_an_adapter_imports_no_module(tmp_path: Path, module: str, more: dict[str, Any]) -> None:
    peft = pytest.importorskip("peft")
    folder = tmp_path / "adapters"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(SETTINGS | {"base_model_name_or_path": "guppy"} | more))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(UserError):
        load(str(folder), CPU)
    assert peft.tuners.lora.tp_layer.get_default_module_allowlist() == ["megatron"]
    allowed = peft.auto.get_default_import_allowlist()
    assert set(allowed) <= {"diffusers", "lerobot", "megatron-core", "transformers"}


def test_weights_in_a_pickle_run_nothing(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = tmp_path / "adapters"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(SETTINGS | {"base_model_name_or_path": "guppy"}))
    for write in (torch.save, lambda what, file: file.write_bytes(pickle.dumps(what))):
        write(Ran(tmp_path / "ran"), folder / "adapter_model.bin")
        with pytest.raises(UserError):
            load(str(folder), CPU)
    with pytest.raises(Exception, match=r"[Ww]eights"):
        torch.load(folder / "adapter_model.bin")
    assert not (tmp_path / "ran").exists()


def test_a_data_set_runs_no_script(tmp_path: Path, module: str) -> None:
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "data.py").write_text("import planted")
    with pytest.raises(Exception, match=r"script|data files|supported"):
        datasets.load_dataset(str(folder))
    with pytest.raises(Exception, match=r"script|supported"):
        datasets.load_dataset(str(folder / "data.py"))


def test_yaml_makes_plain_values_only() -> None:
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load("!!python/object/apply:os.system [id]")


def test_no_redirect_is_followed() -> None:
    assert httpx2.Client().follow_redirects is False
