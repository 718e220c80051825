"""Every module that is started as a process of its own can be started."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import shoal
from shoal.child import command, environment

FOUND = [
    match
    for path in Path(shoal.__file__).parents[1].rglob("*.py")
    for match in re.findall(r'= command\("([\w.]+)"\)', path.read_text(encoding="utf-8"))
]


def test_they_are_found() -> None:
    assert "shoal.sandbox.worker" in FOUND


@pytest.mark.slow
@pytest.mark.parametrize("module", FOUND)
def test_it_starts(module: str) -> None:
    """Without a first message it ends, and not for lack of a module or of its `main`."""
    done = subprocess.run(
        [*command(module), "1"], stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=100
    )
    assert b"ImportError" not in done.stderr
    assert b"ModuleNotFoundError" not in done.stderr
