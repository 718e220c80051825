"""Where a policy computes, in which precision, and memory that is free there."""

from __future__ import annotations

import platform

import psutil
import pytest
import torch

from shoal.errors import UserError
from shoal.policy import device
from shoal.policy.device import free_ram, give_back, place


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def has_bfloat16(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    monkeypatch.setattr(device, "_has_native_bfloat16", lambda _device: answer)


@pytest.mark.parametrize("name", ["abacus", "cuda:99", "cpu:x", "", "cuda:-1"])
def test_a_device_that_is_not_there_is_an_error_of_one_line(name: str) -> None:
    with pytest.raises(UserError, match=f"device '{name}' is not available") as caught:
        place(name)
    assert "\n" not in str(caught.value)


def test_bfloat16_is_refused_where_it_would_be_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    has_bfloat16(monkeypatch, False)
    with pytest.raises(UserError, match="--dtype float32"):
        place("cpu", "bfloat16")
    assert place("cpu", "auto").dtype == place("cpu", "float32").dtype == torch.float32


def test_bfloat16_is_given_where_it_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    has_bfloat16(monkeypatch, True)
    placement = place("cpu", "bfloat16")
    assert placement.dtype == torch.bfloat16
    with placement.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


def test_a_processor_computes_in_float32_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    has_bfloat16(monkeypatch, True)
    placement = place("cpu")
    assert placement.dtype == torch.float32
    with placement.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert str(placement) == "cpu, float32"


def test_without_an_accelerator_the_processor_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert place().device == torch.device("cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_is_taken_with_bfloat16_where_it_has_it() -> None:
    placement = place()
    assert placement.device.type == "cuda"
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    assert placement.dtype == (torch.bfloat16 if native else torch.float32)
    with pytest.raises(UserError, match="not available"):
        place("cuda:99")


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
