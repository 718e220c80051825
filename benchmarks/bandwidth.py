"""Bytes a second that a device's memory gives, by copying within it: what bounds decoding on a GPU."""

from __future__ import annotations

import statistics
import time

import torch

SIZE = 2**30


def copy_bandwidth(device: torch.device) -> float:
    """Bytes read and written a second: the median of ten copies of `SIZE` bytes."""
    source = torch.ones(SIZE, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(11):
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return 2 * SIZE / statistics.median(seconds[1:])
