"""A GGUF file whose header lies: counts, lengths, types, tokens. Each is read or told in a line, in little memory."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from shoal.policy.loading import load
from shoal_extras.gguf.export import KINDS, write_gguf

pytestmark = pytest.mark.slow
READ = """
import sys, torch
from shoal.errors import UserError
from shoal.policy.loading import load
try:
    load(sys.argv[1], torch.device("cpu"))
except UserError as error:
    print("told", error)
else:
    print("read")
"""
ROOM = 6 << 30
"""Bytes of address space: torch alone takes much."""
HUGE = struct.pack("<Q", 2**63 - 1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("gguf") / "guppy.gguf"
    write_gguf(load("guppy", torch.device("cpu")), file, KINDS["F16"])
    return file.read_bytes()


def at(data: bytes, key: bytes, offset: int = 0) -> int:
    """Where the value of a key begins: after its type."""
    found = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4
    return found + offset


def changed(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


LIES = {
    "as it is": lambda d: d,
    "tensors without end": lambda d: changed(d, 8, HUGE),
    "entries without end": lambda d: changed(d, 16, HUGE),
    "a name without end": lambda d: changed(d, 24, HUGE),
    "a text without end": lambda d: changed(d, at(d, b"general.architecture"), HUGE),
    "tokens without end": lambda d: changed(d, at(d, b"tokenizer.ggml.tokens", 4), HUGE),
    "fewer tokens": lambda d: changed(d, at(d, b"tokenizer.ggml.tokens", 4), struct.pack("<Q", 3)),
    "arrays of arrays": lambda d: changed(d, at(d, b"tokenizer.ggml.tokens"), struct.pack("<I", 9)),
    "an unknown type": lambda d: changed(d, at(d, b"general.architecture", -4), struct.pack("<I", 77)),
    "another architecture": lambda d: changed(d, at(d, b"general.architecture", 8), b"../.."),
    "an end that is no token": lambda d: changed(
        d, at(d, b"tokenizer.ggml.eos_token_id"), struct.pack("<I", 2**32 - 1)
    ),
    "another version": lambda d: changed(d, 4, struct.pack("<I", 2**31)),
    "cut in the header": lambda d: d[:2000],
    "cut in the weights": lambda d: d[: len(d) // 2],
    "nothing": lambda d: b"GGUF",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies_is_read_or_told_in_a_line(whole: bytes, lie: str, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(LIES[lie](whole))
    done = subprocess.run(
        [sys.executable, "-c", READ, str(file)],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM)),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = done.stdout.strip()
    assert said == "read" if lie == "as it is" else said.startswith(("told", "read"))
    assert "\n" not in said
