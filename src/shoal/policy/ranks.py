"""One node on several processes (`torchrun`): each answers a part of the questions and learns from a part of the rows.

All ranks run the same program on the same data, so that they decide alike; what they compute in parts they put together
here. What may differ between machines (a verifier's timeouts, Ctrl-C) the first rank decides for all.

    torchrun --nproc-per-node 2 -m shoal run ...
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


class Ranks:
    """The processes that are one node: this one's `rank` among `size`. Alone, every method does nothing."""

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        if self.size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes, shows and decides."""
        return self.rank == 0

    def mine(self, items: Sequence[T]) -> Sequence[T]:
        """This rank's part of `items`: every `size`-th."""
        return items[self.rank :: self.size]

    def together(self, mine: Sequence[T], count: int) -> list[T]:
        """All `count` items, of which each rank has its part (as `mine` gives it), in their order."""
        if self.size == 1:
            return list(mine)
        parts: list[Sequence[T]] = [[] for _ in range(self.size)]
        dist.all_gather_object(parts, list(mine))
        return [parts[i % self.size][i // self.size] for i in range(count)]

    def agreed(self, value: T) -> T:
        """The first rank's `value`."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, 0)
        return box[0]

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Replaces each tensor by its sum over the ranks."""
        if self.size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)
