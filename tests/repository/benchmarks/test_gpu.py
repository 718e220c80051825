"""The one command for whoever has a GPU, tried on a processor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "gpu.py"


@pytest.mark.slow
def test_a_part_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    argv = [sys.executable, str(SCRIPT), "--device", "cpu", "--small", "--out", str(out), "vllm", "decode", "lora 6"]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    found = json.loads(out.read_text())
    assert found["decode"]["shoal 64"] > 0
    assert found["decode"]["generate 64"] > 0
    assert "peak" in found["lora 6"]
    assert "vllm" in found["vllm"]["not run"]
    assert "| the same / transformers generate |" in said
    assert "| 16,000 |" in said
