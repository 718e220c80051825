"""Memory that is free, and memory that was freed."""

from __future__ import annotations

import platform

import pytest
import torch

from shoal.policy.free_memory import free_ram, give_back
from shoal.runs.forecast import resident_bytes


def test_some_memory_is_free() -> None:
    assert free_ram() > 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_what_was_freed_goes_back_to_the_system() -> None:
    """Each block is too small to be mapped by itself, and the last one, which stays, keeps the heap from shrinking."""
    blocks = [torch.ones(16 * 1024) for _ in range(2000)]
    last, before = blocks.pop(), resident_bytes()
    del blocks
    give_back()
    assert resident_bytes() < before - 2**26, "more than half of 125 MiB"
    assert last.sum() == 16 * 1024


def test_it_may_be_called_anywhere() -> None:
    give_back()
    give_back()
