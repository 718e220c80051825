"""The rows of a batch that is being decoded: each is a completion, and all read and draw one token in a step.

    rows = Rows(buckets, chance_RT, sampling, look=1)
    rows.draw(logits_BV)                       # the first token of each
    rows.step(model, placement)                # one more
    tokens_BW, logps_BW = rows.drawn()         # those since the last look, W of each row
    rows.drop(ended)                           # rows whose completion has ended make room

With `look` above 1 the host sees the tokens only now and then; what a completion draws after its end is thrown away.

Shape suffixes: R completions, T tokens of each, B rows, V vocabulary, W tokens since the last look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shoal.policy.decoders.base import Sampling
from shoal.policy.decoders.bucket import Bucket, Step
from shoal.policy.decoders.draw import draw
from shoal.policy.device import Placement
from shoal.policy.vision import output_logits, read


class Rows:
    """The living completions of some buckets, and what they have drawn, on the device."""

    def __init__(self, buckets: Sequence[Bucket], chance_RT: torch.Tensor, sampling: Sampling, look: int) -> None:
        """`chance_RT`: see `draw`. `look`: the most steps between two calls of `drawn`."""
        self._buckets, self.sampling, self.look = list(buckets), sampling, look
        device, R = buckets[0].place_B.device, len(chance_RT)
        self.static = buckets[0].static
        self._chance_RT = chance_RT.to(device, torch.float32 if device.type == "mps" else torch.float64)
        self._row_R, self._token_R, self._place_R = torch.zeros(3, R, dtype=torch.long, device=device)
        self._token_WR = torch.zeros(look, R, dtype=torch.long, device=device)
        self._logp_WR = torch.zeros(look, R, dtype=self._chance_RT.dtype, device=device)
        self._count = torch.zeros(1, dtype=torch.long, device=device)
        self.restart(self._chance_RT)

    def restart(self, chance_RT: torch.Tensor) -> None:
        """All completions are empty and living."""
        self._chance_RT.copy_(chance_RT)
        torch.arange(len(chance_RT), out=self._row_R)
        self._place_R.zero_()
        self._count.zero_()
        self.count = 0
        """W"""
        self.buckets = list(self._buckets)
        self.living = list(range(len(chance_RT)))
        """The completion of each row. With static shapes there are rows whose completion has ended, too."""

    @property
    def shape(self) -> tuple[object, ...]:
        """Rows of one shape and model can be used again, one batch after the other."""
        return tuple(self._chance_RT.shape), self.sampling, self.look, *(bucket.shape for bucket in self._buckets)

    @property
    def key(self) -> tuple[object, ...]:
        """With static shapes: steps with the same key do the same."""
        return tuple((self._buckets.index(bucket), *bucket.key) for bucket in self.buckets)

    def refill(self, other: Rows) -> None:
        """Takes the prompts and chances of rows of the same shape; tensors stay where they are."""
        for mine, theirs in zip(self._buckets, other._buckets, strict=True):
            mine.refill(theirs)
        self.restart(other._chance_RT)

    def make_room(self) -> None:
        """For one more token of each row."""
        for bucket in self.buckets:
            bucket.make_room()
        self.count += 1

    def step(self, model: Any, placement: Placement) -> None:
        """Reads a token of each row and draws the next one, after `make_room`. It reads nothing back."""
        token_B1 = self._token_R[: len(self.living), None]
        position_B1 = torch.cat([bucket.begin_step() for bucket in self.buckets])[:, None]
        with placement.autocast():
            out = read(model, token_B1, position_B1, Step(self.buckets))
            logits_BV = output_logits(model, out.last_hidden_state[:, 0])
        self.draw(logits_BV)

    def draw(self, logits_BV: torch.Tensor) -> None:
        """Draws a token of each row."""
        B = len(logits_BV)
        token_B, logp_B = draw(logits_BV, self.sampling, self._chance_RT[self._row_R[:B], self._place_R[:B]])
        self._token_R[:B] = token_B
        self._place_R[:B] += 1
        self._token_WR[:, :B].index_copy_(0, self._count, token_B[None])
        self._logp_WR[:, :B].index_copy_(0, self._count, logp_B[None].to(self._logp_WR.dtype))
        self._count += 1

    def drawn(self) -> tuple[list[list[int]], list[list[float]]]:
        """The tokens that each row has drawn since the last call, and their log-probabilities."""
        until, B = max(1, self.count), len(self.living)
        found = self._token_WR[:until, :B].T.tolist(), self._logp_WR[:until, :B].T.tolist()
        self._count.zero_()
        self.count = 0
        return found

    def read_next(self, tokens: Sequence[int], places: Sequence[int]) -> None:
        """Each row reads this token instead of the one that it drew, and draws with the chance of this place."""
        device = self._token_R.device
        self._token_R[: len(tokens)] = torch.tensor(tokens, device=device)
        self._place_R[: len(places)] = torch.tensor(places, device=device)

    def drop(self, ended: Sequence[bool]) -> None:
        """Removes rows that have ended; with static shapes only as soon as half of a bucket's rows or more have."""
        if not any(ended):
            return
        order: list[int] = []
        start = 0
        for bucket in list(self.buckets):
            end = start + len(bucket)
            gone = list(ended[start:end])
            if self.static:
                _keep_some(gone)
            order += [start + row for row in (bucket.drop(gone) if any(gone) else range(len(gone)))]
            if all(gone):
                self.buckets.remove(bucket)
            start = end
        if len(order) == len(self.living):
            return
        self.living = [self.living[row] for row in order]
        rows = torch.tensor(order, device=self._row_R.device)
        for of_rows in (self._row_R, self._token_R, self._place_R):
            of_rows[: len(order)] = of_rows[rows]


def _keep_some(gone: list[bool]) -> None:
    """Lets some rows stay, so that there are as many as before or a half, a quarter, ... of that."""
    living, size = gone.count(False), len(gone)
    if not living:
        return
    while (size + 1) // 2 >= living and size > 1:
        size = (size + 1) // 2
    for row in [row for row, end in enumerate(gone) if end][: size - living]:
        gone[row] = False
