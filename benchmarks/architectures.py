"""Which causal architectures of the installed transformers shoal trains, by which path, and how right.

    python benchmarks/architectures.py                       # some minutes; writes benchmarks/tables/architectures.md
    python benchmarks/architectures.py llama mamba           # these alone, on standard output

Each architecture is made tiny, with random weights, from its default configuration. A policy and a learner are made of
it as a run makes them, and a step is taken. "Off" is the greatest difference, in nats, between log-probabilities of
drawn tokens and those of the architecture's own forward pass over the same text: short texts, a text of twice the
sliding window, control tokens.
"""

from __future__ import annotations

import contextlib
import copy
import io
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from shoal.errors import UserError, in_brief, say_once
from shoal.learn.learner import GRPOLearner
from shoal.policy.decoders.base import Request, Sampling, logprob_errors
from shoal.policy.decoders.own import OwnDecoder
from shoal.policy.device import Placement
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel
from shoal.rollout import Message, Question, QuestionId, Rollout, Scored

PAGE: Final = Path(__file__).parent / "tables" / "architectures.md"
CPU: Final = Placement(torch.device("cpu"), torch.float32)
REFUSED: Final = "refused"
NOT_MADE: Final = "not made small"
PATHS: Final = {
    "own": "shoal's own passes",
    "generate": "transformers' own, slower",
    "without a cache": "transformers' own without a cache, slowest: each token reads the whole text again",
    REFUSED: "refused",
    NOT_MADE: "not tried: this script cannot make it small",
}
SECONDS: Final = 30
"""For one architecture."""
LAYERS: Final = 2
SMALL: Final[dict[str, int]] = {
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "embed_dim": 64, "dim": 64, "embedding_size": 64,
    "word_embed_proj_dim": 64, "attention_hidden_size": 64, "block_dim": 64, "time_step_rank": 4, "lru_width": 64,
    "num_attention_heads": 4, "n_head": 4, "num_heads": 4, "decoder_attention_heads": 4, "encoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "attention_head_dim": 16, "global_head_dim": 16, "rotary_dim": 8,
    "intermediate_size": 96, "ffn_dim": 96, "n_inner": 96, "decoder_ffn_dim": 96, "encoder_ffn_dim": 96, "d_ff": 96,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2, "moe_topk": 2, "moe_k": 2,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
    "n_group": 1, "topk_group": 1, "state_size": 8, "mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 32,
    "mamba_n_groups": 1, "n_groups": 1, "mamba_expand": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "max_position_embeddings": 256, "n_positions": 256,
    "sliding_window": 24, "attention_window_size": 24, "attention_chunk_size": 24, "window_size": 24, "chunk_size": 16,
    "ffn_hidden_size": 96, "expert_ffn_hidden_size": 32,
    "index_head_dim": 16, "index_n_heads": 2, "index_topk": 16, "hidden_size_per_layer_input": 8,
}  # fmt: skip
OF_ONE: Final[dict[str, dict[str, Any]]] = {
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "falcon_h1": {"mamba_d_ssm": 128, "mamba_n_heads": 4, "mamba_d_head": 32},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "bamba": {"attn_layer_indices": [1]},
    "dots1": {"n_shared_experts": 1},
    "kimi_linear": {"num_experts_per_token": 2},
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {"axial_pos_embds_dim": (32, 32), "axial_pos_shape": (16, 16)},
    "xlm": {"emb_dim": 64},
}
"""What the sizes of single architectures have to fit."""
DEPTHS: Final = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "decoder_layers",
    "encoder_layers",
    "num_blocks",
)


@dataclass(frozen=True)
class Found:
    """What came of an architecture."""

    name: str
    path: str
    """One of `PATHS`."""
    packs: bool
    """Whether completions of a question are computed together in an update."""
    off: float
    reason: str


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {seconds} seconds")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def small(kind: type[Any], vocabulary: int) -> Any:
    """The default configuration of an architecture, made small."""
    default = kind()
    settings = default.to_dict()
    parts = {name: part for name, part in vars(default).items() if isinstance(part, PreTrainedConfig)}
    changes: dict[str, Any] = {name: small(type(part), vocabulary) for name, part in parts.items()}
    for name, value in SMALL.items():
        if name in settings and (settings[name] is None or type(settings[name]) is int):
            changes[name] = value
    if "qk_rope_head_dim" in settings:  # latent attention
        changes.pop("head_dim", None)
        changes["num_key_value_heads"] = SMALL["num_attention_heads"]
    changes |= {name: 0 for name in settings if name.endswith("token_id") and isinstance(settings[name], int)}
    changes |= {"vocab_size": vocabulary, "eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 0}
    changes |= {"is_decoder": True} if settings.get("is_decoder") is False else {}
    depth = next((settings[name] for name in DEPTHS if settings.get(name)), 0)
    kinds = list(dict.fromkeys(getattr(default, "layer_types", None) or ()))
    kinds = kinds * (1 + LAYERS // (1 + len(kinds)))  # a layer of each kind at least
    for name, value in settings.items():
        if name in DEPTHS and value:
            changes[name] = len(kinds) or LAYERS
        elif name == "layer_types" and kinds:
            changes[name] = kinds
        elif isinstance(value, list) and depth > 2 and len(value) == depth:
            changes[name] = value[: len(kinds) or LAYERS]
    return kind(**changes | OF_ONE.get(default.model_type, {}))


def made(name: str, tokenizer: Any) -> LanguageModel:
    torch.manual_seed(0)
    config = small(CONFIG_MAPPING[name], len(tokenizer))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    size = sum(weight.numel() for weight in model.parameters())
    if size > 20_000_000:
        raise ValueError(f"it has {size:,} parameters when made small")
    with torch.no_grad():
        for weight in model.parameters():  # larger than they start, so that attention and positions matter
            weight.add_(torch.randn_like(weight) * 0.1)
    return LanguageModel(name, model, copy.deepcopy(tokenizer), frozenset([1]), 1, 0)


def step(policy: LanguagePolicy) -> bool:
    """An update on two answers to a question; whether they were packed. Raises `ValueError` if it changes nothing."""
    learner = GRPOLearner(policy, learning_rate=1e-3)
    question = Question(QuestionId("t", "1", "c", 0, 0), (Message("user", "1 + 1 ="),))
    [answers] = policy.generate([question], 2, seed=0)
    rollout = Rollout(question.id, question.hash, answers, "ada", 0)
    result = learner.update([Scored(rollout, question, (1.0, 0.0))])
    if not result.metrics["grad_norm"] > 0 or result.metrics["learner/steps"] != 1:
        raise ValueError(f"a step changes nothing: {result.metrics}")
    return learner.packs


def worst(policy: LanguagePolicy) -> float:
    """The greatest difference in nats, over prompts of unequal lengths, one of them twice the sliding window."""
    draw, lm = random.Random(0), policy.lm
    prompts = [[draw.randrange(320, 480) for _ in range(length)] for length in (48, 25, 25, 4, 1)]
    request = Request(prompts, 2, range(len(prompts)), Sampling(max_completion_length=3), frozenset())
    groups = policy.decoder.decode(request)
    drawn = [(prompt, one.token_ids, one.logps) for prompt, group in zip(prompts, groups, strict=True) for one in group]
    return max(logprob_errors(lm.model, drawn, CPU))


def tried(name: str, tokenizer: Any) -> Found:
    said, path, off, packs = io.StringIO(), NOT_MADE, 0.0, False
    say_once.cache_clear()
    try:
        with within(SECONDS), contextlib.redirect_stderr(said):
            lm = made(name, tokenizer)
            path = REFUSED
            policy = LanguagePolicy(lm, Sampling(max_completion_length=4), CPU)
            off = worst(policy)
            packs = step(policy)
            cached = getattr(policy.decoder, "use_cache", True)
            path = "own" if isinstance(policy.decoder, OwnDecoder) else "generate" if cached else "without a cache"
            reason = said.getvalue()
    except Exception as error:
        reason = str(error) if isinstance(error, UserError) else in_brief(error)
    reason = reason.rpartition("Decoder: ")[2].partition("; transformers' own")[0]
    return Found(name, path, packs, off, " ".join(reason.split())[:160].replace("|", "/"))


def page(found: list[Found], seconds: float) -> str:
    count = Counter(one.path for one in found)
    lines = [
        "# Architectures",
        "",
        f"All {len(found)} causal architectures of transformers {transformers.__version__}, made tiny with random",
        f"weights by `python benchmarks/architectures.py` ({seconds / 60:.0f} minutes). Each answers and learns.",
        "Nats off: the greatest difference of drawn tokens' log-probabilities from those of its own forward pass.",
        "",
        "| how it decodes and learns | architectures |",
        "|---|---|",
        *(f"| {means} | {count[path]} |" for path, means in PATHS.items()),
        "",
        "| architecture | path | nats off | why it does not learn |",
        "|---|---|---|---|",
    ]
    for one in found:
        learns = one.path not in (REFUSED, NOT_MADE)
        off, why = (f"{one.off:.0e}", "") if learns else ("", one.reason.replace("<", "&lt;"))
        lines.append(f"| {one.name} | {one.path} | {off} | {why} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(str(files("shoal") / "guppy"))
    start, found = time.monotonic(), []
    for name in sys.argv[1:] or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        found.append(one := tried(name, tokenizer))
        print(f"{name:26} {one.path:16} {'packs' if one.packs else '':6} {one.off:.1e}  {one.reason}", flush=True)
    if not sys.argv[1:]:
        PAGE.write_text(page(found, time.monotonic() - start))


if __name__ == "__main__":
    main()
