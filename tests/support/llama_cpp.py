"""llama.cpp, by xllamacpp: what it makes of a GGUF file.

with LlamaCpp(path) as llama:
    llama.tokens("2 + 2"), llama.logprobs([5, 6, 7])
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pytest
import torch

PROGRAM = """
import os, sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.port = 1024, 1, 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.warmup, params.verbosity = False, 0
params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(params)
print("at " + server.listening_address, flush=True)
sys.stdin.read()
os._exit(0)
"""


class LlamaCpp:
    """A server on one thread, whose keys and values are F32 as those of transformers are. It has a process of its own,
    since it may hang when it ends."""

    def __init__(self, path: Path) -> None:
        pytest.importorskip("xllamacpp")
        command = [sys.executable, "-c", PROGRAM, str(path)]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        lines = iter(self._server.stdout.readline, "")
        self._address = next((line.strip()[3:] for line in lines if line.startswith("at ")), "")
        if not self._address:
            raise ValueError(f"llama.cpp does not load {path.name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.communicate()

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, in which special tokens may stand."""
        told = {"content": text, "add_special": True, "parse_special": True}
        return list(self._post("/tokenize", told)["tokens"])

    def logprobs(self, ids: Sequence[int], vocabulary: int) -> torch.Tensor:
        """(V,): the log-probabilities of what follows. The bias makes it write a letter, whatever is likely: an answer
        that ends at once, or within a character, has no probabilities."""
        [letter] = [id for id in self.tokens("a") if id not in self.tokens("")]
        told = {"prompt": list(ids), "n_predict": 1, "n_probs": vocabulary, "logit_bias": [[letter, 1e4]]}
        [step] = self._post("/completion", told | {"temperature": 0})["completion_probabilities"]
        found = torch.full((vocabulary,), -math.inf)
        for entry in step["top_logprobs"]:
            found[entry["id"]] = entry["logprob"]
        return found

    def greedy(self, ids: Sequence[int], length: int) -> str:
        """What it writes after these tokens."""
        told = {"prompt": list(ids), "n_predict": length, "temperature": 0}
        return str(self._post("/completion", told)["content"])

    def chat(self, text: str, length: int) -> str:
        """What it answers in a chat, by the file's own chat template."""
        told = {"messages": [{"role": "user", "content": text}], "max_tokens": length, "temperature": 0}
        return str(self._post("/v1/chat/completions", told)["choices"][0]["message"]["content"])

    def _post(self, path: str, told: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self._address + path, json.dumps(told).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise ValueError(f"llama.cpp says {error.code}: {error.read().decode()}") from error
