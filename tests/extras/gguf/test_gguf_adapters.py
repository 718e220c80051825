"""LoRA on a model of a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import CPU

from shoal.cli.main import main
from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.learn.learner import GRPOLearner
from shoal.policy.adapters import base_name
from shoal.policy.decoders.base import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load, load_base
from shoal.policy.lora import add_adapters, restore_adapters
from shoal.policy.products import use_fast_products
from shoal_extras.gguf.export import KINDS, write_gguf

pytest.importorskip("peft")
RANK = 4


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([[5, 6, 7, 8, 9]]), use_cache=False).logits
    return found


@pytest.mark.slow
def test_adapters_on_a_gguf_file_are_saved_found_again_and_merged(tmp_path: Path) -> None:
    file = tmp_path / "guppy.gguf"
    write_gguf(load("guppy", CPU.device), file, KINDS["Q8_0"])
    lm = add_adapters(load(str(file), CPU.device), RANK, seed=0)
    torch.manual_seed(5)
    with torch.no_grad():  # the adapters do something already
        for parameter in (each for each in lm.model.parameters() if each.requires_grad):
            parameter.add_(0.1 * torch.randn_like(parameter))
    policy = LanguagePolicy(lm, Sampling(max_completion_length=3), CPU)
    learner = GRPOLearner(policy, LearnerConfig(), PeersConfig(), 1e-2)
    folder = tmp_path / "node"
    folder.mkdir()
    policy.save(folder)
    learner.save(folder)
    assert base_name(folder) == str(file.resolve())
    resumed = restore_adapters(load_base(folder, CPU.device), RANK, folder)
    plain = logits(resumed.model)  # by torch's own product
    use_fast_products(resumed.model, CPU.device)  # as the policy has had `lm` do
    assert torch.equal(logits(resumed.model), logits(lm.model))
    assert main(["export", str(folder), "--to", str(tmp_path / "merged"), "--merge"]) == 0
    merged = load(str(tmp_path / "merged"), CPU.device)
    assert (logits(merged.model) - plain).abs().max() < 1e-3
    assert merged.tokenizer.encode(" 2 + 2") == lm.tokenizer.encode(" 2 + 2")
