"""A model's weights as llama.cpp has them: its names, order of rows, and quantised blocks.

for name, data, kind in tensors_of(model, family, Kind.Q8_0):
    ...                                          # "blk.0.attn_q.weight", bytes of 576 x 576 numbers, Q8_0
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import gguf
import numpy as np
import torch

from shoal.errors import UserError
from shoal_extras.gguf.families import Family, head_dim_of, rope_of

Kind = gguf.GGMLQuantizationType
KINDS: Final = {kind.name: kind for kind in (Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0)} | {
    kind.name: kind for kind in (Kind.Q5_1, Kind.Q5_0, Kind.Q4_1, Kind.Q4_0)
}
"""How matrices may be written, the most exact first."""
FINE: Final = ("token_embd.weight", "output.weight")
"""They have 8 bits where others have 4 or 5: all answers go through them."""


def tensors_of(model: Any, family: Family, kind: Kind) -> Iterator[tuple[str, np.ndarray[Any, Any], Kind]]:
    """Name, bytes and kind of each tensor of `model`, made one at a time. Matrices are of `kind` if their rows divide
    into its blocks, else F16; the rest is F32.

    Raises `UserError` for a weight that llama.cpp does not know, and for numbers that its kind cannot hold."""
    config = model.config
    names = gguf.get_tensor_name_map(family.arch, config.num_hidden_layers)
    if rope_of(config)["rope_type"] == "llama3":
        yield "rope_freqs.weight", _rope_factors(model), Kind.F32
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        known = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if known is None:
            raise UserError(f"the weight {name} has no name in llama.cpp's {gguf.MODEL_ARCH_NAMES[family.arch]}")
        values = weight.detach().to("cpu", torch.float32)
        if family.shifted_norms and name.endswith("norm.weight"):
            values = values + 1
        heads = _heads(name, config) if family.paired else None
        array = (values if heads is None else _paired(values, heads)).numpy()
        as_kind = _kind_of(known, weight, kind)
        if as_kind == Kind.F16 and not (np.abs(array) <= np.finfo(np.float16).max).all():
            raise UserError(f"{known} has numbers that F16 cannot hold: write BF16 or F32, as in gguf:NAME.BF16.gguf")
        yield known, gguf.quants.quantize(np.ascontiguousarray(array), as_kind), as_kind


def _kind_of(name: str, weight: torch.Tensor, kind: Kind) -> Kind:
    if weight.dim() < 2:
        return Kind.F32
    if name in FINE and kind.name.startswith(("Q4", "Q5")):
        kind = Kind.Q8_0
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    return kind if weight.shape[-1] % block == 0 else Kind.F16


def _heads(name: str, config: Any) -> int | None:
    """The number of heads in a weight of queries or keys; None for all others."""
    found = re.search(r"self_attn\.([qk])_proj\.(weight|bias)$", name)
    if not found:
        return None
    return int(config.num_attention_heads if found[1] == "q" else config.num_key_value_heads)


def _paired(values: torch.Tensor, heads: int) -> torch.Tensor:
    """The rows of each head in llama.cpp's order. transformers turns dimension i with i + half, llama.cpp 2 i with
    2 i + 1."""
    halves: torch.Tensor = values.unflatten(0, (heads, 2, -1))
    return halves.transpose(1, 2).flatten(0, 2)


def _rope_factors(model: Any) -> np.ndarray[Any, Any]:
    """What llama.cpp divides the usual frequencies by."""
    head_dim, base = head_dim_of(model.config), rope_of(model.config)["rope_theta"]
    usual = 1 / base ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    factors: np.ndarray[Any, Any] = (usual / model.model.rotary_emb.inv_freq.double()).float().numpy()
    return factors
