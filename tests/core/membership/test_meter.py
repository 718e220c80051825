"""Counting messages and bytes."""

from __future__ import annotations

import time

import pytest

from shoal.membership.meter import Meter


def test_rates_are_over_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    meter, now = Meter(), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for _ in range(20):
        meter.count(100)
    assert meter.status()["messages_per_second"] == 2
    now[0] += 60
    assert meter.status() | {"last": 0} == {
        "messages": 20, "bytes": 2000, "messages_per_second": 0, "bytes_per_second": 0, "last": 0
    }  # fmt: skip
