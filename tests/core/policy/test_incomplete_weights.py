"""Weights that are missing, under other names or tied: right, or refused in a line. Nothing is random in silence."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from shoal.errors import UserError
from shoal.policy.loading import load

GUPPY = Path(str(files("shoal") / "guppy"))
CPU = torch.device("cpu")
IDS = torch.tensor([[5, 6, 7, 8, 9]])


def changed(folder: Path, change: Any) -> str:
    """A copy of guppy with other weights."""
    shutil.copytree(GUPPY, folder)
    save_file(change(load_file(GUPPY / "model.safetensors")), folder / "model.safetensors", {"format": "pt"})
    return str(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda weights: dict(list(weights.items())[1:]), "its files lack the weights .*model"),
        (
            lambda weights: {f"_orig_mod.{name}": value for name, value in weights.items()},
            r"lack the weights .* and \d+ more \(they have _orig_mod",
        ),
        (lambda weights: weights | {"value_head.weight": torch.zeros(3)}, "beside the model's the weights value_head"),
        (
            lambda weights: weights | {"model.norm.weight": torch.zeros(3)},
            "have in other shapes the weights model.norm.weight",
        ),
    ],
    ids=["missing", "prefixed", "unexpected", "another shape"],
)
def test_weights_that_are_not_the_models_are_named(tmp_path: Path, change: Any, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        load(changed(tmp_path / "model", change), CPU)
    assert "\n" not in str(caught.value)


def adapters(folder: Path, tied: bool, target: str) -> Any:
    """Writes adapters of a copy of guppy and returns peft's own model of them."""
    peft = pytest.importorskip("peft")
    base = AutoModelForCausalLM.from_pretrained(GUPPY, dtype=torch.float32)
    if not tied:
        base.config.tie_word_embeddings = False
        base.lm_head.weight = torch.nn.Parameter(base.lm_head.weight.detach().clone())
    base.save_pretrained(folder / "base")
    AutoTokenizer.from_pretrained(GUPPY).save_pretrained(folder / "base")
    base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=[target, "q_proj"], task_type="CAUSAL_LM"))
    torch.manual_seed(1)
    for name, value in model.named_parameters():
        if "lora_" in name:
            value.data.normal_(0, 0.1)
    model.save_pretrained(folder / "adapters")
    return model.eval()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_adapters_of_tied_matrices_give_what_peft_gives(tmp_path: Path, target: str, tied: bool) -> None:
    theirs = adapters(tmp_path, tied, target)
    ours = load(str(tmp_path / "adapters"), CPU).model.eval()
    with torch.no_grad():
        difference = ours(IDS).logits.log_softmax(-1) - theirs(IDS).logits.log_softmax(-1)
    assert float(difference.abs().max()) < 1e-4


def test_adapters_that_lack_matrices_are_refused(tmp_path: Path) -> None:
    adapters(tmp_path, False, "lm_head")
    file = tmp_path / "adapters" / "adapter_model.safetensors"
    kept = {name: value for name, value in load_file(file).items() if ".layers.0." not in name}
    save_file(kept, file, {"format": "pt"})
    with pytest.raises(UserError, match=r"lack 2 matrices, such as .*layers\.0\."):
        load(str(tmp_path / "adapters"), CPU)
