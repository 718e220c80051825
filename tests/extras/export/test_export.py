"""`shoal export`: what appears is whole and loads, what fails leaves nothing, mistakes are one line."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_card import make_run
from tiny import CPU, make_lm

from shoal.cli.main import main
from shoal.errors import UserError
from shoal.policy.loading import load
from shoal.policy.lora import add_adapters
from shoal_extras.export import export as exporting
from shoal_extras.export import exported

NODE = Path("checkpoints") / "round-000012" / "node-1"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose first node is a guppy."""
    run = make_run(tmp_path / "run", {"node-1": 3, "node-2": 2})
    (run / NODE / "config.json").unlink()
    load("guppy", CPU.device).save(run / NODE)
    (run / NODE / "learner.pt").write_bytes(b"optimizer")
    return run


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in words]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    return line


def test_a_run_becomes_an_ordinary_folder(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["export", str(run), "--to", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == str(out)
    assert f"shoal eval {out}" in printed
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in out.iterdir()}
    assert not (out / "learner.pt").exists()
    assert len({path.stat().st_mode for path in out.iterdir()}) == 1  # whoever reads the card can read the weights
    again, node = load(str(out), CPU.device), load(str(run / NODE), CPU.device)
    for name, weight in node.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], weight)
    assert again.answers_in_lines
    assert "| all | 96 |" in (out / "README.md").read_text()
    everything = b"".join(path.read_bytes() for path in out.iterdir())
    assert str(tmp_path).encode() not in everything
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]


def test_a_node_becomes_a_gguf_file_with_what_goes_beside_it(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "m.Q8_0.gguf"
    assert main(["export", str(run / "node-1"), "--to", f"gguf:{out}"]) == 0
    assert {path.name for path in out.parent.iterdir()} == {"m.Q8_0.gguf", "m.Q8_0.md", "m.Q8_0.Modelfile"}
    assert load(str(out), CPU.device).stop_ids == frozenset([1])


def test_what_is_there_stays(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.md").write_text("mine")
    assert "m.md' exists and is not overwritten" in said(capsys, "export", run, "--to", f"gguf:{tmp_path}/m.gguf")
    assert "is not empty" in said(capsys, "export", run, "--to", tmp_path)
    assert (tmp_path / "m.md").read_text() == "mine"


def test_mistakes_are_one_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert "choose from F32, F16" in said(capsys, "export", run, "--to", f"gguf:{tmp_path}/m.Q4_K_M.gguf")
    assert "no name of a GGUF file" in said(capsys, "export", run, "--to", "gguf:m.bin")
    assert "write hub:NAME" in said(capsys, "export", run, "--to", "guff:m.gguf")
    assert "--public is for" in said(capsys, "export", run, "--to", out, "--public")
    assert "no LoRA adapters to merge" in said(capsys, "export", run, "--to", out, "--merge")
    assert "has no model of 'node-7'" in said(capsys, "export", run / "node-7", "--to", out)
    assert "is no model" in said(capsys, "export", tmp_path / "nothing" / "here", "--to", out)
    make_lm("gpt2").save(tmp_path / "gpt2")
    assert "'gpt2', which is not written as GGUF" in said(
        capsys, "export", tmp_path / "gpt2", "--to", f"gguf:{tmp_path}/m.gguf"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpt2", "run"]


@pytest.mark.parametrize("target", ["out", "gguf:m.gguf"])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    target: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def short(*_: Any, **__: Any) -> None:
        """What numpy says of a full disk."""
        raise OSError("16384 requested and 8032 written")

    def free(place: Path) -> SimpleNamespace:
        """A disk that is full as long as what was written is there."""
        return SimpleNamespace(free=0 if list(tmp_path.glob(".*.tmp")) else 1 << 40)

    monkeypatch.setattr("shoal_extras.export.writing.shutil.disk_usage", free)
    monkeypatch.setattr("shoal_extras.gguf.export.gguf.GGUFWriter.write_tensors_to_file", short)
    monkeypatch.setattr("shoal.policy.loading.LanguageModel.save", full)
    assert "the disk is full" in said(capsys, "export", run, "--to", target)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_is_not_there_is_said_so(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "did you mean 'run'?" in said(capsys, "export", "rum/checkpoints/round-000002", "--to", "out")


def test_adapters_stay_adapters_unless_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("peft")
    make_lm().save(tmp_path / "base")
    adapted = add_adapters(load(str(tmp_path / "base"), CPU.device), rank=2, seed=0)
    adapted.save(tmp_path / "adapters")
    assert main(["export", str(tmp_path / "adapters"), "--to", str(tmp_path / "as such")]) == 0
    names = {path.name for path in (tmp_path / "as such").iterdir()}
    assert {"README.md", "adapter_config.json", "adapter_model.safetensors", "tokenizer_config.json"} <= names
    assert "model.safetensors" not in names
    assert "library_name: peft" in (tmp_path / "as such" / "README.md").read_text()
    assert str(tmp_path) not in (tmp_path / "as such" / "README.md").read_text()
    load(str(tmp_path / "as such"), CPU.device)
    assert main(["export", str(tmp_path / "adapters"), "--to", str(tmp_path / "merged"), "--merge"]) == 0
    assert not (tmp_path / "merged" / "adapter_config.json").exists()
    load(str(tmp_path / "merged"), CPU.device)


def test_adapters_on_the_hub_name_their_base_there(tmp_path: Path) -> None:
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({"base_model_name_or_path": "/home/me/model", "r": 2}))
    exported._rename_base(file, "me/model")
    assert json.loads(file.read_text()) == {"base_model_name_or_path": "me/model", "r": 2}


def test_a_name_that_ends_with_gguf_is_a_file(tmp_path: Path) -> None:
    target = exporting.target_of(str(tmp_path / "model.Q8_0.gguf"), public=False)
    assert target == exporting.target_of(f"gguf:{tmp_path}/model.Q8_0.gguf", public=False)
    with pytest.raises(UserError, match="nowhere to export to"):
        exporting.target_of("GGUF:model.gguf", public=False)
