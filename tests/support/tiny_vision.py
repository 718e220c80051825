"""Tiny vision-language models with random weights, one for each family, and questions with pictures for them."""

from __future__ import annotations

import random
from typing import Any

import torch
from support.tiny import make_tokenizer
from transformers import (
    AutoModelForImageTextToText,
    Gemma3Config,
    Gemma3ImageProcessorPil,
    Gemma3TextConfig,
    Idefics3Config,
    Idefics3ImageProcessorPil,
    LlamaConfig,
    LlavaConfig,
    Qwen2_5_VLConfig,
    Qwen2VLConfig,
    Qwen2VLImageProcessorPil,
    SiglipImageProcessorPil,
    SiglipVisionConfig,
    SmolVLMConfig,
    SmolVLMImageProcessorPil,
)

from shoal.policy.loading import LanguageModel
from shoal.policy.vision import attach_vision
from shoal.rollout import Message, Picture, Question, QuestionId

VISION = ("llava", "idefics3", "smolvlm", "qwen2_vl", "qwen2_5_vl", "gemma3")
MARKERS = ("<image>", "<begin>", "<end>", "<fake_token_around_image>", "<global-img>", "<|vision_end|>")
SIZE = 16
"""Pixels of the pictures of all but Qwen's, which may have any size."""
TEXT: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
SIGLIP: dict[str, Any] = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIZE,
    "patch_size": 4,
}


def make_vision_lm(family: str, *, double: bool = False, seed: int = 0, template: str = "") -> LanguageModel:
    """A model of `family` with a byte-level tokenizer."""
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKERS)})
    tokenizer.chat_template = template or None
    ids = dict(zip(MARKERS, tokenizer.convert_tokens_to_ids(list(MARKERS)), strict=True))
    config, processor = _config(family, len(tokenizer), ids)
    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():  # large enough that pictures and positions matter
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.generation_config.eos_token_id = 1
    model = (model.double() if double else model).eval()
    attach_vision(model, tokenizer, processor, f"tiny-{family}")
    return LanguageModel(f"tiny-{family}", model, tokenizer, frozenset([1]), 1, 0)


def _config(family: str, vocabulary: int, ids: dict[str, int]) -> tuple[Any, Any]:
    text = {**TEXT, "vocab_size": vocabulary}
    image, square = ids["<image>"], {"height": SIZE, "width": SIZE}
    edge = {"size": {"longest_edge": SIZE}, "max_image_size": {"longest_edge": SIZE}}
    if family == "llava":
        config: Any = LlavaConfig(
            vision_config=SiglipVisionConfig(**SIGLIP, vision_use_head=False),
            text_config=LlamaConfig(**text),
            image_token_index=image,
            vision_feature_select_strategy="full",
            vision_feature_layer=-1,
        )
        return config, SiglipImageProcessorPil(size=square)
    if family in ("idefics3", "smolvlm"):
        kind, processor = {
            "idefics3": (Idefics3Config, Idefics3ImageProcessorPil),
            "smolvlm": (SmolVLMConfig, SmolVLMImageProcessorPil),
        }[family]
        config = kind(
            vision_config={**SIGLIP, "model_type": f"{family}_vision"},
            text_config={**text, "model_type": "llama"},
            image_token_id=image,
            scale_factor=2,
        )
        return config, processor(**edge)
    if family in ("qwen2_vl", "qwen2_5_vl"):
        rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
        vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2}
        kind = Qwen2VLConfig
        if family == "qwen2_vl":
            vision |= {"embed_dim": 16, "hidden_size": 16, "mlp_ratio": 2}
        else:
            kind = Qwen2_5_VLConfig
            sizes = {"hidden_size": 16, "intermediate_size": 16, "out_hidden_size": 16}
            vision |= {**sizes, "window_size": 16, "fullatt_block_indexes": [1]}
        config = kind(
            vision_config=vision,
            text_config={**text, "rope_parameters": rope},
            image_token_id=image,
            vision_end_token_id=ids["<|vision_end|>"],
            tie_word_embeddings=False,
        )
        pixels = {"shortest_edge": 64, "longest_edge": 4096}
        return config, Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, size=pixels)
    layers = ["sliding_attention", "full_attention"]
    config = Gemma3Config(
        vision_config=SiglipVisionConfig(**SIGLIP, vision_use_head=False),
        text_config=Gemma3TextConfig(**text, head_dim=8, sliding_window=6, layer_types=layers),
        mm_tokens_per_image=4,
        boi_token_index=ids["<begin>"],
        eoi_token_index=ids["<end>"],
        image_token_index=image,
    )
    return config, Gemma3ImageProcessorPil(size=square)


def picture(seed: int, width: int = SIZE, height: int = SIZE) -> Picture:
    return Picture(width, height, random.Random(seed).randbytes(3 * width * height))


def shown(text: str, *pictures: Picture) -> Question:
    """A question about `pictures`."""
    return Question(QuestionId("seen", "1", "", 0, 0), (Message("user", text),), pictures=pictures)
