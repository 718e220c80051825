"""Replaces the attention of a transformers model, whose forward pass then takes `attending=`, such as a `Reading` of
rows of tokens behind a prefix that they share.

    with attention(model):
        shared = Reading(keep=True)
        model.base_model(prefix_ids, position_ids=..., use_cache=False, attending=shared)
        model.base_model(rest_ids, position_ids=..., use_cache=False, attending=Reading(shared.layers))

Shape suffixes: R rows, S new tokens of each, L tokens of the prefix, N = L + S, H key-value heads, K queries that share
one, D size of a head, E size of a value.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface

NAME = "shoal"
KeysValues = tuple[torch.Tensor, torch.Tensor]
"""(R, H, S, D) and (R, H, S, E) of one layer."""


@dataclass(frozen=True)
class Kind:
    """How a layer scores."""

    scale: float
    """What products of queries and keys are multiplied by."""
    window: int | None
    """It reaches back so many tokens, itself among them. None: to the beginning."""
    softcap: float | None
    """Scores are squeezed into plus or minus this. None: they stay."""


def reader(model: Any) -> Any:
    """The model without its output layer; of a vision-language model, the part that reads text and picture features."""
    config = model.config
    return model.base_model if config.get_text_config() is config else model.get_decoder()


@contextmanager
def attention(model: Any) -> Iterator[None]:
    """Replaces the model's own attention to text. Where layers are checkpointed, the backward pass is within, too."""
    text = reader(model)
    before = text.config._attn_implementation
    text.set_attn_implementation(NAME)
    try:
        yield
    finally:
        text.set_attn_implementation(before)


def _as_transformers_calls(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    *,
    attending: Any,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers calls it: query (R, heads, S, D), key (R, H, S, D), value (R, H, S, E); out (R, S, heads, E).
    `attending`: has `attend` as `Reading` does, which gives (R, H, K, S, E) for the new tokens."""
    R, heads, S, D = query.shape
    H = key.shape[1]
    kind = Kind(D**-0.5 if scaling is None else scaling, sliding_window, softcap)
    out = attending.attend(module.layer_idx, query.reshape(R, H, heads // H, S, D), key, value, kind)
    return out.reshape(R, heads, S, -1).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _as_transformers_calls)


class Reading:
    """The attention of one pass through rows of tokens."""

    def __init__(
        self,
        prefix: Sequence[KeysValues] = (),
        mask: Callable[[int | None], torch.Tensor] | None = None,
        plain: int = 0,
        keep: bool = False,
    ) -> None:
        """`prefix`: by layer, with R = 1. `mask`: (R, S, N) for a window: which tokens each one sees; None: rows are
        plain texts, padded on the right, where nothing sees the padding. `plain`: with a mask, how many tokens each
        row begins with that are such a text. `keep`: whether `layers` is wanted."""
        self.prefix = prefix
        self._mask = mask
        self._plain = plain
        self._masks: dict[tuple[int | None, int, int], torch.Tensor] = {}
        self._keep = keep
        self._kept: dict[int, KeysValues] = {}
        self.pictures_RS: torch.Tensor | None = None
        """For models in which the tokens of a picture see each other: its number for each of them, and -1 in texts."""

    @property
    def layers(self) -> list[KeysValues]:
        """The keys and values of the rows by layer, without those of the prefix."""
        return [self._kept[number] for number in sorted(self._kept)]

    def attend(
        self, layer: int, query_RHKSD: torch.Tensor, key_RHSD: torch.Tensor, value_RHSE: torch.Tensor, kind: Kind
    ) -> torch.Tensor:
        if self._keep:
            self._kept.setdefault(layer, (key_RHSD, value_RHSE))  # a checkpointed layer is computed twice
        key_RHND, value_RHNE = key_RHSD, value_RHSE
        if self.prefix:
            key_RHND, value_RHNE = (
                torch.cat([shared.to(own.dtype).expand(len(own), -1, -1, -1), own], 2)
                for shared, own in zip(self.prefix[layer], (key_RHSD, value_RHSE), strict=True)
            )
        R, H, K, S, D = query_RHKSD.shape
        slides = kind.window is not None and kind.window < key_RHND.shape[2]
        special = self.prefix or slides or kind.softcap or self.pictures_RS is not None
        plain = 0 if special else S if self._mask is None else self._plain if 2 * self._plain > S else 0
        parts = []
        if plain:  # half the work of a mask; of a short text that is less than another product costs
            out_RASE = torch.nn.functional.scaled_dot_product_attention(
                query_RHKSD[:, :, :, :plain].reshape(R, H * K, plain, D), key_RHND[:, :, :plain],
                value_RHNE[:, :, :plain], is_causal=True, scale=kind.scale, enable_gqa=K > 1,
            )  # fmt: skip
            parts.append(out_RASE.view(R, H, K, plain, -1))
        if plain < S:
            rest = query_RHKSD[:, :, :, plain:]
            mask = self._folded(kind.window if slides else None, rest, key_RHND.shape[2], kind.softcap is None)
            query = rest.reshape(R, H, K * (S - plain), D)  # all queries of a head are rows of one product
            parts.append(_attend(query, key_RHND, value_RHNE, mask, kind).view(R, H, K, S - plain, -1))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 3)

    def _folded(self, window: int | None, query_RHKSD: torch.Tensor, N: int, added: bool) -> torch.Tensor:
        """The mask (R, 1, K S, N) of the last S tokens, or (1, 1, K S, N) where it is the same for all rows. `added`:
        as 0 and minus infinity, which are added to scores. From a boolean mask torch makes these anew in each layer,
        and keeps them for the backward pass."""
        _R, _H, K, S, _D = query_RHKSD.shape
        if (window, K, S) not in self._masks:  # in some models K differs by layer
            mask_RSN = self._mask(window)[:, -S:] if self._mask else causal(S, N, window, query_RHKSD.device)[None]
            if self.pictures_RS is not None:
                number_RS1 = self.pictures_RS[..., None]
                same_RSS = (number_RS1 == self.pictures_RS[:, None]) & (number_RS1 >= 0)
                mask_RSN = mask_RSN | torch.nn.functional.pad(same_RSS, (N - S, 0))
            mask = mask_RSN.repeat(1, K, 1)[:, None]
            if added:
                mask = torch.zeros_like(mask, dtype=query_RHKSD.dtype).masked_fill_(~mask, -torch.inf)
            self._masks[window, K, S] = mask
        return self._masks[window, K, S]


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, kind: Kind
) -> torch.Tensor:
    """`mask`: as `Reading._folded` makes it."""
    if kind.softcap is None:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=kind.scale)
    scores = torch.tanh((query * kind.scale) @ key.transpose(-1, -2) / kind.softcap) * kind.softcap
    return (
        scores.masked_fill(~mask, -torch.inf)
        .softmax(-1, torch.promote_types(scores.dtype, torch.float32))
        .to(value.dtype)
        @ value
    )


def causal(S: int, N: int, window: int | None, device: torch.device) -> torch.Tensor:
    """(S, N): which of N tokens the last S of them see."""
    distance_SN = torch.arange(N - S, N, device=device)[:, None] - torch.arange(N, device=device)
    mask_SN = distance_SN >= 0
    return mask_SN if window is None else mask_SN & (distance_SN < window)
