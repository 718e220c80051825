"""Whether a run's exported model answers as `shoal ask` does: its held-out questions, asked in four ways.

    python benchmarks/asked_alike.py RUN [QUESTIONS]

Greedy answers of `shoal ask`, of plain transformers on the exported folder, and of llama.cpp on the GGUF files of each
kind. It prints how many of the answers are the same text, and those that are not. Needs xllamacpp.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "extras" / "export"))
from test_asked_alike import ways_of

with tempfile.TemporaryDirectory() as scratch:
    ways = ways_of(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20, Path(scratch))
here = ways.pop("shoal ask")
for way, answers in ways.items():
    others = [question for question in here if answers[question] != here[question]]
    print(f"{way}: {len(here) - len(others)} of {len(here)} as shoal ask")
    for question in others:
        print(f"  {question}\n    {here[question]!r}\n    {answers[question]!r}")
