"""Attention of many completions to few prompts: all completions of a prompt share one copy of its keys and values.

`attention(model)` replaces the attention of a transformers model, whose forward pass then takes `buckets=`.

Shape suffixes: Q prompts, G completions of each, P positions in a prompt, B living completions, T positions in a
completion, N = P + T, H key-value heads, K queries that share one (heads / H), D size of a head, E size of a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from transformers import AttentionInterface

NAME = "shoal_shared_prefix"


class Bucket:
    """Completions of prompts of similar length, with the keys and values of the prompts and of the completions."""

    def __init__(
        self,
        prompts: Sequence[tuple[torch.Tensor, torch.Tensor]],
        lengths: Sequence[int],
        num_generations: int,
        max_length: int,
    ) -> None:
        """`prompts`: keys and values (Q, H, P, D) of each layer, padded on the right. `lengths`: without padding."""
        self.prompts = prompts
        Q, _H, P, _D = prompts[0][0].shape
        B, device = Q * num_generations, prompts[0][0].device
        self._room = (B, max_length - 1)  # the last token of a completion is never attended to
        self.steps = 0
        """T: the number of tokens of each completion so far."""
        self.num_generations = num_generations
        self.place_B = torch.arange(B, device=device)
        """The completion of each row, numbered in the order of the prompts."""
        self.whole = True
        """Whether every completion is living, in the order of the prompts."""
        self.lengths_Q = torch.tensor(lengths, device=device)
        self.padded = min(lengths) < P
        self.position_P = torch.arange(P, device=device)
        self._bias: dict[int | None, torch.Tensor | None] = {}

    def __len__(self) -> int:
        """B: living completions."""
        return len(self.place_B)

    @cached_property
    def own(self) -> list[tuple[torch.Tensor, ...]]:
        """Keys and values (B, H, T, D) of each layer, living completions first."""
        B, T = self._room
        return [tuple(t.new_empty(B, t.shape[1], T, t.shape[-1]) for t in layer) for layer in self.prompts]

    def begin_step(self) -> torch.Tensor:
        """Makes room for one more token of each completion. Returns its position (B)."""
        self.steps += 1
        self._bias = {}
        return self._lengths_B() + (self.steps - 1)

    def drop(self, ended: Sequence[bool]) -> list[int]:
        """Removes rows that have ended; the last living rows move into their places. Returns each row's old row."""
        living = [row for row, end in enumerate(ended) if not end]
        order = list(range(len(living)))
        holes = [row for row in order if ended[row]]
        if holes:
            movers = living[-len(holes) :]
            for hole, mover in zip(holes, movers, strict=True):
                order[hole] = mover
            to, from_ = torch.tensor([holes, movers], device=self.place_B.device)  # once for all layers
            for cache_BHTD in (cache for keys_and_values in self.own for cache in keys_and_values):
                cache_BHTD[to, :, : self.steps] = cache_BHTD[from_, :, : self.steps]
        self.place_B = self.place_B[torch.tensor(order, dtype=torch.long, device=self.place_B.device)]
        self.whole = self.whole and not any(ended)
        return order

    def attend(
        self,
        layer: int,
        query_BHKD: torch.Tensor,
        key_BHD: torch.Tensor,
        value_BHE: torch.Tensor,
        window: int | None,
        softcap: float | None,
    ) -> torch.Tensor:
        """Attention (B, H, K, E) of each completion's newest token to its prompt and itself; queries are scaled."""
        keys_QHPD, values_QHPE = self.prompts[layer]
        own_keys_BHTD, own_values_BHTE = self._append(layer, key_BHD, value_BHE)
        scores_BHKP = self._by_prompt(query_BHKD, keys_QHPD.transpose(-1, -2))
        scores_BHKN = torch.cat([scores_BHKP, query_BHKD @ own_keys_BHTD.transpose(-1, -2)], -1)
        if softcap is not None:
            scores_BHKN = torch.tanh(scores_BHKN / softcap) * softcap
        if window not in self._bias:
            self._bias[window] = self._bias_B11N(window, scores_BHKN.dtype)
        bias_B11N = self._bias[window]
        if bias_B11N is not None:
            scores_BHKN = scores_BHKN + bias_B11N
        probs_BHKN = torch.softmax(scores_BHKN, -1, dtype=torch.float32).to(values_QHPE.dtype)
        P = keys_QHPD.shape[2]
        return self._by_prompt(probs_BHKN[..., :P], values_QHPE) + probs_BHKN[..., P:] @ own_values_BHTE

    def _append(self, layer: int, key_BHD: torch.Tensor, value_BHE: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Adds the newest token's key and value. Returns those of all tokens: (B, H, T, D), (B, H, T, E)."""
        keys_BHTD, values_BHTE = (cache[: len(self), :, : self.steps] for cache in self.own[layer])
        keys_BHTD[:, :, -1] = key_BHD
        values_BHTE[:, :, -1] = value_BHE
        return keys_BHTD, values_BHTE

    def _by_prompt(self, rows_BHKX: torch.Tensor, matrix_QHXY: torch.Tensor) -> torch.Tensor:
        """Each row times its prompt's matrix, (B, H, K, Y): one product for all completions of a prompt."""
        (_B, H, K, X), Q, G = rows_BHKX.shape, len(matrix_QHXY), self.num_generations
        every = rows_BHKX
        if not self.whole:  # a row for each completion, living or not, in the order of the prompts
            every = rows_BHKX.new_zeros(Q * G, H, K, X)
            every[self.place_B] = rows_BHKX
        stacked = every.reshape(Q, G, H, K, X).transpose(1, 2).reshape(Q, H, G * K, X)
        product = (stacked @ matrix_QHXY).view(Q, H, G, K, -1).transpose(1, 2).reshape(Q * G, H, K, -1)
        return product if self.whole else product[self.place_B]

    def _lengths_B(self) -> torch.Tensor:
        return self.lengths_Q[self.place_B // self.num_generations]

    def _bias_B11N(self, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        """Added to scores: -inf for padding and for tokens outside the window; None if there are none."""
        P, T = len(self.position_P), self.steps
        slides = window is not None and window < P + T
        if not self.padded and not slides:
            return None
        length_B1 = self._lengths_B()[:, None]
        hidden_BP = self.position_P >= length_B1
        hidden_BT = torch.zeros(len(self), T, dtype=torch.bool, device=hidden_BP.device)
        if window is not None and slides:
            hidden_BP = hidden_BP | (length_B1 + (T - 1) - self.position_P >= window)
            hidden_BT[:, : max(0, T - window)] = True
        hidden_BN = torch.cat([hidden_BP, hidden_BT], 1)
        return torch.zeros(hidden_BN.shape, dtype=dtype, device=hidden_BN.device).masked_fill_(hidden_BN, -torch.inf)[
            :, None, None
        ]


@contextmanager
def attention(model: Any) -> Iterator[None]:
    """Replaces the model's own attention by this one."""
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    *,
    buckets: Sequence[Bucket],
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers calls it: query (B, heads, 1, D), key (B, H, 1, D), value (B, H, 1, E); out (B, 1, heads, E)."""
    B, heads, _one, D = query.shape
    H = key.shape[1]
    query_BHKD = (query * (D**-0.5 if scaling is None else scaling)).reshape(B, H, heads // H, D)
    outs, start = [], 0
    for bucket in buckets:
        at = slice(start, start + len(bucket))
        outs.append(
            bucket.attend(module.layer_idx, query_BHKD[at], key[at, :, 0], value[at, :, 0], sliding_window, softcap)
        )
        start = at.stop
    return torch.cat(outs).reshape(B, 1, heads, -1), None


AttentionInterface.register(NAME, _attend)
