"""What transformers leaves out of a GGUF file, or makes up: scaled positions and stop tokens.

facts = facts_of(Path("llama-3.2.gguf"), config)
facts.rope                  # {"rope_type": "llama3", "factor": 32.0, ...}; None: positions are not scaled
facts.stop_ids              # {128001, 128009}
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from shoal.errors import UserError

ENDS: Final = ("eos", "eot", "eom")
SPECIAL: Final = (*ENDS, "bos", "padding", "unknown")
ORIGINAL: Final = [2**power for power in range(5, 21)]
"""Lengths of context that a model may have been trained with before its positions were scaled."""


@dataclass(frozen=True)
class Facts:
    """What a file says beside its weights."""

    rope: dict[str, Any] | None
    """The parameters of its rotary positions as transformers has them; None if they are not scaled."""
    stop_ids: frozenset[int]
    has_eos: bool
    """Whether it has an end-of-sequence token; otherwise transformers takes the token 2."""
    pre: str
    """How it cuts texts into words, in llama.cpp's words."""


def facts_of(path: Path, config: Any) -> Facts:
    """Raises `UserError` for scaled positions that transformers does not compute, and for an unknown special token."""
    import gguf  # a tenth of a second that only a file needs

    reader = gguf.GGUFReader(path)
    arch = _value(reader, "general.architecture")
    kind = _value(reader, f"{arch}.rope.scaling.type") or "none"
    factor = _value(reader, f"{arch}.rope.scaling.factor") or 1.0
    tensors = {tensor.name: tensor for tensor in reader.tensors if tensor.name.startswith("rope_f")}
    theta = float(_value(reader, f"{arch}.rope.freq_base") or 10_000.0)
    rope: dict[str, Any] | None = None
    if "rope_freqs.weight" in tensors:
        rope = _llama3(np.array(tensors["rope_freqs.weight"].data, dtype=np.float64).ravel(), theta)
    elif tensors:
        raise UserError(f"its positions are scaled by {', '.join(tensors)}, which is not read: take the model's folder")
    elif kind in ("linear", "yarn") and factor != 1.0:
        rope = {"rope_type": kind, "factor": float(factor)}
        if kind == "yarn":
            original = _value(reader, f"{arch}.rope.scaling.original_context_length")
            rope["original_max_position_embeddings"] = int(original or config.max_position_embeddings / factor)
    elif kind not in ("none", "linear", "yarn"):
        raise UserError(f"its positions are scaled ({kind}) in a way that is not read: take the model's folder")
    ids = {name: _value(reader, f"tokenizer.ggml.{name}_token_id") for name in SPECIAL}
    tokens = reader.get_field("tokenizer.ggml.tokens")
    for name, id in ids.items():
        if id is not None and tokens is not None and id >= len(tokens.data):
            raise UserError(f"its tokenizer.ggml.{name}_token_id is {id}, and it has {len(tokens.data)} tokens")
    stop_ids = frozenset(int(ids[end]) for end in ENDS if ids[end] is not None)
    pre = str(_value(reader, "tokenizer.ggml.pre") or "")
    return Facts(None if rope is None else {**rope, "rope_theta": theta}, stop_ids, ids["eos"] is not None, pre)


def _llama3(factors: Any, theta: float) -> dict[str, Any]:
    """The parameters of Llama 3's positions from its frequencies' divisors. Source: `_compute_llama3_parameters`."""
    wavelengths = 2 * math.pi * theta ** (np.arange(len(factors)) / len(factors))
    factor = float(factors.max())
    for original in ORIGINAL:
        smooth = np.clip((original / wavelengths - 1) / 3, 0, 1)
        wanted = 1 / ((1 - smooth) / factor + smooth)
        if np.allclose(wanted, factors, rtol=1e-3):
            turns = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original}
            return {"rope_type": "llama3", "factor": round(factor, 4), **turns}
    raise UserError("its positions are scaled by factors that are not Llama 3's: take the model's folder")


def _value(reader: Any, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()
