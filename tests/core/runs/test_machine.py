"""A model that is too large is refused in one line, before it is loaded."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.policy.device import place
from shoal.runs import machine
from shoal.runs.machine import check_memory, compute_with


def config(lora_r: int = 0) -> Config:
    return Config.model_validate({"policy": {"model": ["big"], "lora_r": lora_r}}).resolved()


@pytest.fixture(autouse=True)
def a_small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: Any = {"big": 1e9, "unknown": float("inf")}
    monkeypatch.setattr(machine, "parameters", sizes.__getitem__)
    monkeypatch.setattr(machine, "free_ram", lambda: 16 * 10**9)


def test_it_says_what_is_needed_and_what_to_do() -> None:
    with pytest.raises(UserError, match=r"take 24.0 GB or more \('big' .* 16.0 GB are free: take a smaller model"):
        check_memory(config(), {"node-1": "big", "node-2": "big"}, place("cpu"))


@pytest.mark.parametrize("sources", [{"node-1": "big"}, {"node-1": "unknown"}, {"node-1": "http://localhost/v1"}])
def test_what_may_fit_is_tried(sources: dict[str, str]) -> None:
    check_memory(config(), sources, place("cpu"))


def test_adapters_share_a_base() -> None:
    check_memory(config(lora_r=8), {"node-1": "big", "node-2": "big"}, place("cpu"))


def test_numbers_that_are_slow_to_compute_with_are_0() -> None:
    tiny = torch.full((4,), 1e-39)
    able = torch.set_flush_denormal(True)  # not every processor can
    torch.set_flush_denormal(False)
    assert (tiny * 1).any()
    compute_with(1)
    assert not (able and (tiny * 1).any())
