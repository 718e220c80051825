"""The families of models that `shoal export` writes as GGUF, and what llama.cpp must know of a model's architecture.

    family = family_of(model.config, name)        # UserError for others
    add_settings(writer, family, model.config)

llama.cpp has a fixed program for each family. What a configuration may ask for beyond it is refused here: the file
would load and compute something else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import gguf

from shoal.errors import UserError


@dataclass(frozen=True)
class Family:
    """How llama.cpp has a family of models."""

    arch: gguf.MODEL_ARCH
    act: str = "silu"
    """The activation in the feed-forward part."""
    paired: bool = False
    """Whether rotary positions turn neighbouring dimensions: the rows of queries and keys are in another order."""
    shifted_norms: bool = False
    """Whether a norm multiplies by 1 + weight."""


FAMILIES: Final[Mapping[str, Family]] = {
    "llama": Family(gguf.MODEL_ARCH.LLAMA, paired=True),
    "smollm3": Family(gguf.MODEL_ARCH.SMOLLM3, paired=True),
    "qwen2": Family(gguf.MODEL_ARCH.QWEN2),
    "qwen3": Family(gguf.MODEL_ARCH.QWEN3),
    "gemma3_text": Family(gguf.MODEL_ARCH.GEMMA3, "gelu_pytorch_tanh", shifted_norms=True),
}
"""By `model_type` in config.json. SmolLM and SmolLM2 are of type llama."""
GEMMA_PERIOD: Final = 6
"""Of this many layers of a Gemma 3 the last sees all positions, and the others a window."""
SMOLLM3_PERIOD: Final = 4
"""Of this many layers of a SmolLM3 the last has no rotary positions."""


def family_of(config: Any, name: str) -> Family:
    """The family of a model with this configuration. Raises `UserError` if llama.cpp would compute it differently."""
    family = FAMILIES.get(config.model_type)
    if family is None:
        raise UserError(
            f"model '{name}' is of the kind '{config.model_type}', which is not written as GGUF: Llama, SmolLM, Qwen2, "
            "Qwen3 and Gemma 3 (text) are; --to FOLDER takes any"
        )
    for trouble in _troubles(family, config):
        raise UserError(f"model '{name}' is not written as GGUF: llama.cpp has no {config.model_type} with {trouble}")
    return family


def add_settings(writer: gguf.GGUFWriter, family: Family, config: Any) -> None:
    """Writes the model's dimensions and rotary positions."""
    head_dim = head_dim_of(config)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(head_dim)
    if family.arch == gguf.MODEL_ARCH.GEMMA3:
        writer.add_sliding_window(config.sliding_window)
        writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_rope_freq_base(rope_of(config)["rope_theta"])


def head_dim_of(config: Any) -> int:
    """The width of one head of attention."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def rope_of(config: Any) -> Mapping[str, Any]:
    """The rotary positions of the layers that see all positions."""
    rope: Mapping[str, Any] = config.rope_parameters
    full: Mapping[str, Any] = rope.get("full_attention", rope)
    return full


def _troubles(family: Family, config: Any) -> Iterable[str]:
    """Settings that llama.cpp would ignore, or that are not written here."""
    act = getattr(config, "hidden_activation", None) or config.hidden_act
    rope = rope_of(config)["rope_type"]
    full = [kind == "full_attention" for kind in getattr(config, "layer_types", None) or []]
    if act != family.act:
        yield f"the activation {act}"
    if rope != "default" and (rope, family.arch) != ("llama3", gguf.MODEL_ARCH.LLAMA):
        yield f"rotary positions of the kind {rope}"
    if getattr(config, "attention_bias", False):
        yield "attention_bias"
    if family.arch == gguf.MODEL_ARCH.GEMMA3:
        layers = range(1, config.num_hidden_layers + 1)
        if full != [layer % GEMMA_PERIOD == 0 for layer in layers]:
            yield f"another order of layers than five with a window and one without, {GEMMA_PERIOD} by {GEMMA_PERIOD}"
        if config.rope_parameters["sliding_attention"]["rope_type"] != "default":
            yield "scaled positions in layers with a window"
        wide = config.num_hidden_layers == 62  # 27B: llama.cpp knows it by its layers
        scale = config.hidden_size // config.num_attention_heads if wide else head_dim_of(config)
        if config.query_pre_attn_scalar != scale:
            yield f"query_pre_attn_scalar = {config.query_pre_attn_scalar}"
        if config.final_logit_softcapping or config.attn_logit_softcapping:
            yield "capped logits"
    elif not all(full):
        yield "windows of attention"
    if family.arch == gguf.MODEL_ARCH.SMOLLM3 and list(config.no_rope_layers) != [
        int(layer % SMOLLM3_PERIOD != 0) for layer in range(1, config.num_hidden_layers + 1)
    ]:
        yield "rotary positions in other layers than three of four"
