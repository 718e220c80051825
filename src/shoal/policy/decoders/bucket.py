"""Decoding: the attention of many completions to few prompts. The completions of a prompt share one copy of its keys
and values, and prompts with a common prefix share one copy of the prefix's.

Shape suffixes: Q prompts, G completions of each, L positions in the prefix, P in the rest of a prompt, B living
completions, T positions in a completion, C with the room for more, N = L + P + C, H key-value heads, K queries that
share one (heads / H), D size of a head, E size of a value.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shoal.policy.attention import KeysValues, Kind

GROWTH = 32
"""Tokens for which completions get room at a time. Their keys and values lie without gaps, so that a product reads them
where they are: with room for all tokens from the start it would copy them, at each token and layer."""
BLOCK = 64
"""With static shapes: prompts are padded to a multiple of this many tokens, and the part of the room that is attended
to is this many, then twice as many, and so on."""


class Bucket:
    """Completions of prompts of similar length, with the keys and values of the prompts and of the completions."""

    def __init__(
        self,
        prefix: Sequence[KeysValues],
        prompts: Sequence[KeysValues],
        lengths: Sequence[int],
        num_generations: int,
        max_length: int,
        ends: Sequence[int],
        static: bool = False,
    ) -> None:
        """`prefix`: keys and values (1, H, L, D) of each layer; empty if there is none. `prompts`: those (Q, H, P, D)
        of the rest of each prompt, padded on the right. `lengths`: of the rest, without padding. `ends`: the position
        of each prompt's first answered token. `static`: what a step computes depends on `key` alone, and what differs
        from step to step is on the device, so that a CUDA graph can repeat it."""
        first = prompts[0][0]
        device, kind = first.device, first.device.type
        # That of autocast, if it is on: what is kept in it need not be cast for each token, and products are the same.
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else first.dtype
        self.static = static
        P = -(-first.shape[2] // BLOCK) * BLOCK if static else first.shape[2]
        self.prefix = [(keys.to(dtype), values.to(dtype)) for keys, values in prefix]
        self.prompts = [(_padded(keys.to(dtype), P), _padded(values.to(dtype), P)) for keys, values in prompts]
        B = len(lengths) * num_generations
        self._longest = max_length - 1  # the last token of a completion is never attended to
        room = self._longest if static else 0
        self.own = [tuple(t.new_zeros(B, t.shape[1], room, t.shape[-1]) for t in layer) for layer in self.prompts]
        """Keys and values (B or more, H, C or more, D) of each layer, living completions first."""
        self.room = 0
        """C: tokens of each completion that are attended to; those that are still to come get no weight."""
        self.num_generations = num_generations
        self._rows = torch.arange(B, device=device)
        self.size = B
        """B: rows that are computed."""
        self.shared = prefix[0][0].shape[2] if prefix else 0
        """L"""
        self.lengths_Q = self.shared + torch.tensor(lengths, device=device)
        self.ends_Q = torch.tensor(ends, device=device)
        self.padded = static or min(lengths) < P
        self._newest = torch.zeros(1, dtype=torch.long, device=device)
        self._bias: dict[int | None, torch.Tensor | None] = {}
        self.restart()

    def restart(self) -> None:
        """All completions are empty and living."""
        self.steps = 0
        """T: the number of tokens of each completion so far."""
        self._newest.fill_(-1)
        torch.arange(len(self._rows), out=self._rows)
        self.size = len(self._rows)
        self.whole = True
        """Whether every completion is living, in the order of the prompts."""

    @property
    def shape(self) -> tuple[object, ...]:
        """Buckets of one shape and model can be `refill`ed from each other."""
        keys = self.prompts[0][0]
        return tuple(keys.shape), keys.dtype, self.shared, self.num_generations, self._longest

    @property
    def key(self) -> tuple[int, int, bool]:
        """With static shapes: steps with the same key do the same."""
        return self.size, self.room, self.whole

    def refill(self, other: Bucket) -> None:
        """Takes the prompts of a bucket of the same shape; tensors stay where they are."""
        pairs = [*zip(self.prefix, other.prefix, strict=True), *zip(self.prompts, other.prompts, strict=True)]
        for mine, theirs in pairs:
            for to, from_ in zip(mine, theirs, strict=True):
                to.copy_(from_)
        self.lengths_Q.copy_(other.lengths_Q)
        self.ends_Q.copy_(other.ends_Q)
        self.restart()

    def __len__(self) -> int:
        """B: rows that are computed."""
        return self.size

    @property
    def place_B(self) -> torch.Tensor:
        """The completion of each row, numbered in the order of the prompts."""
        return self._rows[: self.size]

    def make_room(self) -> None:
        """For one more token of each completion."""
        self.steps += 1
        if self.steps <= self.room:
            return
        if self.static:
            self.room = min(max(BLOCK, 2 * self.room), self._longest)
            return
        more = min(GROWTH, self._longest - self.room)
        self.room += more
        for layer, caches in enumerate(self.own):
            self.own[layer] = tuple(torch.nn.functional.pad(t[: len(self)], (0, 0, 0, more)) for t in caches)

    def begin_step(self) -> torch.Tensor:
        """The position (B) of the token that is read next of each completion."""
        self._newest += 1
        self._bias = {}
        return self.ends_Q[self.place_B // self.num_generations] + self._newest

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
        self._rows[: len(order)] = self.place_B[torch.tensor(order, dtype=torch.long, device=self._rows.device)]
        self.size = len(order)
        self.whole = self.whole and not any(ended)
        return order

    def attend(
        self, layer: int, query_BHKD: torch.Tensor, key_BHD: torch.Tensor, value_BHE: torch.Tensor, kind: Kind
    ) -> torch.Tensor:
        """Attention (B, H, K, E) of each completion's newest token to its prompt and itself."""
        keys_QHPD, values_QHPE = self.prompts[layer]
        query_BHKD = (query_BHKD * kind.scale).to(keys_QHPD.dtype)
        own_keys_BHCD, own_values_BHCE = self._append(layer, key_BHD, value_BHE)
        scores = [
            self._by_prompt(query_BHKD, keys_QHPD.transpose(-1, -2)),
            query_BHKD @ own_keys_BHCD.transpose(-1, -2),
        ]
        if self.prefix:
            scores.insert(0, _by_prefix(query_BHKD, self.prefix[layer][0][0].transpose(-1, -2)))
        scores_BHKN = torch.cat(scores, -1)
        if kind.softcap is not None:
            scores_BHKN = torch.tanh(scores_BHKN / kind.softcap) * kind.softcap
        if kind.window not in self._bias:
            self._bias[kind.window] = self._bias_B11N(kind.window, scores_BHKN.dtype)
        bias_B11N = self._bias[kind.window]
        if bias_B11N is not None:
            scores_BHKN = scores_BHKN + bias_B11N
        L, P, C = self.shared, keys_QHPD.shape[2], self.room
        if not self.static:
            scores_BHKN[..., L + P + self.steps :] = -torch.inf
        wide = torch.promote_types(scores_BHKN.dtype, torch.float32)
        probs_BHKN = torch.softmax(scores_BHKN, -1, dtype=wide).to(values_QHPE.dtype)
        of_prefix, of_prompt, of_own = probs_BHKN.split([L, P, C], -1)
        out_BHKE: torch.Tensor = self._by_prompt(of_prompt, values_QHPE) + of_own @ own_values_BHCE
        if self.prefix:
            out_BHKE = out_BHKE + _by_prefix(of_prefix, self.prefix[layer][1][0])
        return out_BHKE

    def _append(self, layer: int, key_BHD: torch.Tensor, value_BHE: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Adds the newest token's key and value. Returns those of all tokens: (B, H, C, D), (B, H, C, E)."""
        caches = tuple(cache[: len(self), :, : self.room] for cache in self.own[layer])
        for cache_BHCX, newest_BHX in zip(caches, (key_BHD, value_BHE), strict=True):
            if self.static:
                cache_BHCX.index_copy_(2, self._newest, newest_BHX[:, :, None].to(cache_BHCX.dtype))
            else:
                cache_BHCX[:, :, self.steps - 1] = newest_BHX
        return caches

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

    def _bias_B11N(self, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        """Added to scores: -inf for padding and for tokens outside the window (with static shapes also for those that
        are still to come); None if there are none."""
        until, C = self.shared + self.prompts[0][0].shape[2], self.room  # L + P
        slides = window is not None and window < until + (C if self.static else self.steps)
        if not self.padded and not slides:
            return None
        length_B1, device = self.lengths_Q[self.place_B // self.num_generations, None], self.place_B.device
        position_BN = torch.cat(
            [torch.arange(until, device=device).expand(len(self), -1), length_B1 + torch.arange(C, device=device)], 1
        )
        hidden_BN = position_BN >= length_B1
        hidden_BN[:, until:] = torch.arange(C, device=device) > self._newest
        if window is not None and slides:
            hidden_BN |= length_B1 + self._newest - position_BN >= window
        return torch.zeros(hidden_BN.shape, dtype=dtype, device=device).masked_fill_(hidden_BN, -torch.inf)[
            :, None, None
        ]


def _padded(rows: torch.Tensor, P: int) -> torch.Tensor:
    """`rows`, padded on the right to P positions."""
    return rows if rows.shape[2] == P else torch.nn.functional.pad(rows, (0, 0, 0, P - rows.shape[2]))


def _by_prefix(rows_BHKX: torch.Tensor, matrix_HXY: torch.Tensor) -> torch.Tensor:
    """Every row times the same matrix, (B, H, K, Y)."""
    B, H, K, X = rows_BHKX.shape
    product_HBKY = rows_BHKX.transpose(0, 1).reshape(H, B * K, X) @ matrix_HXY
    return product_HBKY.view(H, B, K, -1).transpose(0, 1)


class Step:
    """The attention of one pass through the newest token of every completion of some buckets."""

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self._buckets = buckets

    def attend(
        self, layer: int, query_BHK1D: torch.Tensor, key_BH1D: torch.Tensor, value_BH1E: torch.Tensor, kind: Kind
    ) -> torch.Tensor:
        if len(self._buckets) == 1:
            (bucket,) = self._buckets
            newest = query_BHK1D[:, :, :, 0], key_BH1D[:, :, 0], value_BH1E[:, :, 0]
            return bucket.attend(layer, *newest, kind)[:, :, :, None]
        sizes = [len(bucket) for bucket in self._buckets]
        parts = (t.split(sizes) for t in (query_BHK1D[:, :, :, 0], key_BH1D[:, :, 0], value_BH1E[:, :, 0]))
        outs = [bucket.attend(layer, *part, kind) for bucket, *part in zip(self._buckets, *parts, strict=True)]
        return torch.cat(outs)[:, :, :, None]
