"""Settings of `[policy]`: what answers, and how it decodes."""

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, PrivateAttr

from shoal.config.sections import Section
from shoal.untrusted import parse_json, read_regular

GUPPY: Final = "guppy"
GUPPY_GAMES: Final = "guppy-games"
GUPPY_EYE: Final = "guppy-eye"
EMBEDDED: Final = {GUPPY: "guppy", GUPPY_GAMES: "guppy_games", GUPPY_EYE: "guppy_eye"}
"""The models that ship with shoal, and the folders of the package that hold them."""
SUITE_MODELS: Final = {"games": GUPPY_GAMES, "pictures": GUPPY_EYE}
"""Suites with a default model of their own."""
PRETRAINED: Final = "smollm2"
"""The model for data of one's own: it knows English, and fits a processor and 4 GB of memory."""
RATES: Final = {GUPPY: 4e-4, GUPPY_GAMES: 2e-4, GUPPY_EYE: 2e-4}
PRETRAINED_RATE: Final = 2e-5
GEMMA_RATE: Final = 1e-6
"""Learning rates for all weights. guppy's is the best of five (docs/studies/learning-rate), that of pretrained models
too, with SmolLM2 (rate-pretrained); Gemma 3 270M collapses there and has its own (rate-gemma). A test names the pages
that say them."""
MOST_BYTES: Final = 2**20
"""Of a model's config.json."""
SMALL: Final = 20_000_000
"""Bytes of weights: a folder with less holds a model of guppy's size."""


class PolicyConfig(Section):
    """What answers, and how it decodes."""

    model: list[str] = Field([GUPPY], min_length=1)
    """guppy, guppy-games, guppy-eye, smollm2, gemma3-270m, a Hugging Face name, a model folder, a GGUF file, an
    endpoint, or module:attribute. An endpoint is the address of an OpenAI-compatible server (http://HOST/v1 or
    http://HOST/v1#MODEL); it answers but never learns. module:attribute is a policy of your own: it is called with the
    Config and the folder of a checkpoint or None (see examples/own_policy.py). If there are several, the nodes take
    them in turn. The default is guppy, in the suite games guppy-games, in the suite
    pictures guppy-eye, and for a data set smollm2."""
    engine: str = "transformers"
    """What decodes: transformers, which is shoal's own decoder; one of an installed package, such as vllm, which is
    experimental and has never run on a GPU; or module:attribute (see docs/extend/decoder.md)."""
    num_generations: int = Field(8, ge=1)
    """G: completions for each question."""
    max_completion_length: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """The longest completion, in tokens. auto: 8 in `games`, 16 in `pond` and `pictures`, 24 in `reef`, 32 in `tagged`,
    256 in `paper`; for tasks of your own, and with worked examples, as right answers need; 64 if the tasks do not tell
    these, 256 where steps come before the answer."""
    temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Softmax temperature of decoding."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the smallest set of tokens with at least this probability."""
    device: str = "auto"
    """Where models compute: auto (CUDA, but tiny models on the processor), cpu, cuda, cuda:1, or mps (never tried)."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; weights stay float32. auto: bfloat16 on a GPU that has it, float32 elsewhere."""
    lora_r: int = Field(0, ge=0)
    """Rank of LoRA adapters; 0: train all weights. Adapters are then all that is trained and saved (`shoal[lora]`)."""
    _from_file: bool = PrivateAttr(False)

    @property
    def sends_key(self) -> bool:
        """Whether endpoints get the key in OPENAI_API_KEY. A file alone cannot decide who receives it."""
        return not self._from_file


def is_endpoint(model: str) -> bool:
    """Whether a model's name is the address of a server."""
    return model.startswith(("http://", "https://"))


def is_own_policy(model: str) -> bool:
    """Whether a model's name is module:attribute, a policy of one's own."""
    return not is_endpoint(model) and re.fullmatch(r"[^:\s]+:[A-Za-z_]\w*", model) is not None


def default_learning_rate(model: str, adapters: bool) -> float:
    """What `auto` means: `RATES` for the models that ship with shoal, guppy's for a folder with a model of its size
    (what a run of guppy left), `GEMMA_RATE` and `PRETRAINED_RATE` for others, and ten times that for LoRA adapters
    (Schulman, LoRA Without Regret, 2025)."""
    large = GEMMA_RATE if is_gemma(model) else PRETRAINED_RATE
    rate = RATES.get(model) or (RATES[GUPPY] if is_small(model) else large)
    return rate * (10 if adapters else 1)


def is_gemma(model: str) -> bool:
    """Whether a model is a Gemma by its name, or by the config.json of its folder."""
    if "gemma" in Path(model).name.lower():
        return True
    try:
        settings = parse_json(read_regular(Path(model, "config.json"), MOST_BYTES))
    except (OSError, ValueError):  # no folder has such a name, or it is not one of a model
        return False
    return isinstance(settings, dict) and str(settings.get("model_type", "")).startswith("gemma")


def is_small(model: str) -> bool:
    """Whether a model ships with shoal, or is a folder with the weights of one of guppy's size."""
    if model in EMBEDDED:
        return True
    try:
        return 0 < sum(file.stat().st_size for file in Path(model).glob("model*.safetensors")) < SMALL
    except (OSError, ValueError):  # no folder has such a name
        return False
