"""Scaled positions and several stop tokens survive the way through a GGUF file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from shoal.policy.loading import load
from shoal_extras.gguf.export import Kind, write_gguf

ROPES: dict[str, dict[str, Any]] = {
    "llama3": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "none": {"rope_type": "default"},
}


@pytest.mark.parametrize("kind", ROPES)
def test_positions_and_stop_tokens_are_those_of_the_folder(tmp_path: Path, kind: str) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(str(files("shoal") / "guppy"))
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama",
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        rope_parameters={"rope_theta": 10_000.0, **ROPES[kind]},
        eos_token_id=tokenizer.eos_token_id,
    )
    model: Any = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(8)
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, 40, 41]
    model.save_pretrained(tmp_path / "llama")
    tokenizer.save_pretrained(tmp_path / "llama")
    cpu = torch.device("cpu")
    folder = load(str(tmp_path / "llama"), cpu)
    write_gguf(folder, tmp_path / "llama.gguf", Kind.F32)
    file = load(str(tmp_path / "llama.gguf"), cpu)
    ids = (torch.arange(128) % 60 + 50)[None]
    with torch.no_grad():
        off = (folder.model(ids).logits.log_softmax(-1) - file.model(ids).logits.log_softmax(-1)).abs().max()
    assert float(off) < 1e-4
    assert file.stop_ids == folder.stop_ids >= {40, 41}
