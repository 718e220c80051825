"""Modelfiles for Ollama."""

from __future__ import annotations

from tiny import make_lm

from shoal.policy.loading import load
from shoal_extras.gguf.export import modelfile_of


def test_the_file_names_the_model_and_where_answers_end() -> None:
    lines = modelfile_of(make_lm(chat=True), "m.Q8_0.gguf", 0.7).splitlines()
    assert lines[0].startswith("#")
    assert lines[1:] == ["FROM ./m.Q8_0.gguf", "PARAMETER temperature 0.7", 'PARAMETER stop "<|im_end|>"']
    assert 'PARAMETER stop "<eos>"' in modelfile_of(load("guppy", make_lm().model.device), "g.gguf", 1.0)
