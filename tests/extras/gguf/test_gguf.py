"""GGUF files: llama.cpp computes what transformers computes, reads texts alike, and shoal loads them again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
import transformers
from llama_cpp import LlamaCpp
from tiny import make_tokenizer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from shoal.errors import UserError
from shoal.policy.loading import LanguageModel, load
from shoal_extras.gguf.export import KINDS, write_gguf
from shoal_extras.gguf.vocabulary import GPT2, LLAMA3, QWEN2, add_vocabulary

CPU = torch.device("cpu")
COMMON: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": 3,
    "pad_token_id": 0,
    "vocab_size": 304,
}
"""More rows of embeddings than the tokenizer has tokens, as many published models have."""
THETA = {"rope_theta": 10000.0}
LLAMA3_ROPE = {
    **THETA,
    **{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "original_max_position_embeddings": 64,
}
YARN = {**THETA, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
GEMMA = {"num_hidden_layers": 7, "head_dim": 256, "sliding_window": 5, "query_pre_attn_scalar": 256}
MODELS: dict[str, Any] = {
    "llama": transformers.LlamaConfig(**COMMON),
    "llama-tied": transformers.LlamaConfig(**COMMON, tie_word_embeddings=True),
    "llama-heads": transformers.LlamaConfig(**COMMON, head_dim=32),
    "llama-llama3": transformers.LlamaConfig(**COMMON, rope_parameters=LLAMA3_ROPE),
    "qwen2": transformers.Qwen2Config(**COMMON, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**COMMON, head_dim=128),
    "smollm3": transformers.SmolLM3Config(**COMMON | {"num_hidden_layers": 5}),
    "gemma3": transformers.Gemma3TextConfig(**COMMON | GEMMA),
}
EXACT, GELU = 1e-3, 2e-2
"""Differences of log-probabilities that range over about 15. Gemma's activation is a table of F16 in llama.cpp."""
ROUGH, CLOSE = 0.5, 0.05
"""Kullback-Leibler divergence that 8 bits may cost a random and a trained model: of weights, and in llama.cpp of
activations. That of a random model with rows in a wrong order is several nats."""


def tiny(name: str, config: Any = None) -> LanguageModel:
    config = config or MODELS[name]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for weight in model.parameters():  # biases and norms too, which start as constants
            weight.add_(0.1 * torch.randn_like(weight))
    tokenizer = make_tokenizer(chat=True)
    end = int(tokenizer.eos_token_id)
    model.config.eos_token_id = model.generation_config.eos_token_id = end
    return LanguageModel(f"tiny-{name}", model, tokenizer, frozenset([end]), end, 0)


def logprobs(lm: LanguageModel, ids: list[int]) -> torch.Tensor:
    model: Any = lm.model
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].float(), -1)


def divergence(wanted: torch.Tensor, found: torch.Tensor) -> float:
    return float((wanted.exp() * (wanted - found)).sum())


@pytest.mark.parametrize("name", MODELS)
def test_llama_cpp_computes_the_same(name: str, tmp_path: Path) -> None:
    lm = tiny(name)
    ids = torch.randint(4, 300, (40,), generator=torch.Generator().manual_seed(1)).tolist()
    wanted = logprobs(lm, ids)
    for kind, tolerance in (("F32", GELU if "gemma" in name else EXACT), ("F16", 0.2)):
        write_gguf(lm, tmp_path / f"{kind}.gguf", KINDS[kind])
        with LlamaCpp(tmp_path / f"{kind}.gguf") as llama:
            assert (llama.logprobs(ids, 304) - wanted).abs().max() < tolerance
            chat = "<|im_start|>user\nhi 12<|im_end|>\n"
            assert llama.tokens(chat) == lm.tokenizer(chat).input_ids
    write_gguf(lm, tmp_path / "Q8_0.gguf", KINDS["Q8_0"])
    with LlamaCpp(tmp_path / "Q8_0.gguf") as llama:
        assert divergence(wanted, llama.logprobs(ids, 304)) < ROUGH


@pytest.mark.parametrize("name", ["llama", "llama-tied", "qwen2", "qwen3", "gemma3"])
def test_a_file_loads_again_as_the_same_model(name: str, tmp_path: Path) -> None:
    lm = tiny(name)
    write_gguf(lm, tmp_path / "model.gguf", KINDS["F32"])
    again = load(str(tmp_path / "model.gguf"), CPU)
    ids = list(range(5, 45))
    assert (logprobs(again, ids) - logprobs(lm, ids)).abs().max() < 1e-4
    assert again.tokenizer.encode("2 + 2 = 4<|im_end|>") == lm.tokenizer.encode("2 + 2 = 4<|im_end|>")
    assert (again.stop_ids, again.eos_id) == (lm.stop_ids, lm.eos_id)
    assert again.tokenizer.chat_template == lm.tokenizer.chat_template


@pytest.mark.parametrize("kind", KINDS)
def test_quantised_weights_are_near(kind: str, tmp_path: Path) -> None:
    lm = tiny("llama")
    write_gguf(lm, tmp_path / "model.gguf", KINDS[kind])
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    assert found["blk.0.ffn_up.weight"].tensor_type == KINDS[kind]
    assert found["output_norm.weight"].tensor_type == KINDS["F32"]
    wanted = lm.model.state_dict()["model.layers.0.mlp.up_proj.weight"].numpy()
    tensor = found["blk.0.ffn_up.weight"]
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(wanted.shape)
    bits = {"F32": 23, "F16": 10, "BF16": 7, "Q8_0": 7}.get(kind, 3)
    assert abs(values - wanted).max() <= abs(wanted).max() * 2.0**-bits
    if kind.startswith("Q4"):
        assert found["token_embd.weight"].tensor_type == KINDS["Q8_0"]


def test_guppy_is_asked_in_lines_by_llama_cpp_too(tmp_path: Path) -> None:
    lm = load("guppy", CPU)
    write_gguf(lm, tmp_path / "guppy.gguf", KINDS["F32"])
    again = load(str(tmp_path / "guppy.gguf"), CPU)
    assert again.answers_in_lines
    with LlamaCpp(tmp_path / "guppy.gguf") as llama:
        for text in ("What is 12 + 345?\n", "hello  world\n\n1234567 x", "é 🚀 \t tab"):
            assert llama.tokens(text) == lm.tokenizer(text).input_ids == again.tokenizer(text).input_ids
        ids = lm.tokenizer("12 + 30 =\n").input_ids
        assert (llama.logprobs(ids, 640) - logprobs(lm, ids)).abs().max() < EXACT
        assert llama.chat("12 + 30 =", 8) == llama.greedy(ids, 8)


def byte_level(*steps: Any, **options: Any) -> Any:
    """A tokenizer that cuts texts by these steps."""
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "<e>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["the quick brown fox isn't 1234 or 99 of THEM'RE  all\n\nyes, no."] * 4, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="<e>")


def split(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
DIGITS = pre_tokenizers.Digits(individual_digits=True)
TEXTS = (
    "The quick  brown fox isn't 1234567 or 99 of THEM'RE\n\n\n  all, yes!",
    " é 🚀 \t tab, naïve 中文字 ...",
    "def f(x):\n    return x**2  # 3.14\n",
)


@pytest.mark.parametrize(
    ("steps", "pre"),
    [
        ((WORDS,), "gpt-2"),
        ((DIGITS, WORDS), "smollm"),
        ((DIGITS, BYTES), "superbpe"),
        ((split(QWEN2), BYTES), "qwen2"),
        ((split(LLAMA3), BYTES), "smaug-bpe"),
        ((split(GPT2), BYTES), "gpt-2"),
    ],
)
def test_texts_are_cut_alike(steps: Any, pre: str, tmp_path: Path) -> None:
    lm = tiny("llama", transformers.LlamaConfig(**COMMON | {"vocab_size": 400}))
    tokenizer = byte_level(*steps)
    lm = LanguageModel("x", lm.model, tokenizer, frozenset([1]), 1, 1)
    write_gguf(lm, tmp_path / "x.gguf", KINDS["F16"])
    field = gguf.GGUFReader(tmp_path / "x.gguf").get_field("tokenizer.ggml.pre")
    assert field is not None
    assert field.contents() == pre
    with LlamaCpp(tmp_path / "x.gguf") as llama:
        for text in TEXTS:
            assert llama.tokens(text) == tokenizer(text).input_ids


def test_what_llama_cpp_lacks_is_refused(tmp_path: Path) -> None:
    def said(config: Any) -> str:
        with pytest.raises(UserError) as caught:
            write_gguf(tiny("x", config), tmp_path / "x.gguf", KINDS["F16"])
        assert not (tmp_path / "x.gguf").exists()
        return str(caught.value)

    assert "Llama, SmolLM, Qwen2, Qwen3 and Gemma 3" in said(
        transformers.GPT2Config(vocab_size=304, n_embd=16, n_layer=1, n_head=2)
    )
    assert "activation relu" in said(transformers.LlamaConfig(**COMMON, hidden_act="relu"))
    assert "kind yarn" in said(transformers.LlamaConfig(**COMMON, rope_parameters=YARN))
    assert "kind llama3" in said(transformers.Qwen2Config(**COMMON, rope_parameters=LLAMA3_ROPE))
    assert "attention_bias" in said(transformers.LlamaConfig(**COMMON, attention_bias=True))
    other = ["sliding_attention", "full_attention"]
    assert "order of layers" in said(
        transformers.Gemma3TextConfig(**COMMON | GEMMA | {"num_hidden_layers": 2}, layer_types=other)
    )
    assert "query_pre_attn_scalar" in said(
        transformers.Gemma3TextConfig(**COMMON | GEMMA | {"query_pre_attn_scalar": 8})
    )


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ({"eos": None}, "has no end-of-sequence token"),
        ({"eos": 9999}, "its tokenizer.ggml.eos_token_id is 9999, and it has 304 tokens"),
        ({"pad": 9999}, "its tokenizer.ggml.padding_token_id is 9999"),
        ({"eot": 5}, {3, 5}),
        ({"eos": None, "eot": 5}, {5}),
    ],
)
def test_a_file_s_ends_are_those_that_it_names(
    written: dict[str, int | None], wanted: str | set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file names none, transformers would take the token 2."""
    lm = tiny("llama")
    if "eot" in written:
        lm.model.generation_config.eos_token_id = [3, 5]
    for name, id in written.items():
        method = f"add_{name}_token_id"
        add: Any = getattr(gguf.GGUFWriter, method)
        monkeypatch.setattr(gguf.GGUFWriter, method, lambda writer, _, add=add, id=id: id and add(writer, id))
    write_gguf(lm, tmp_path / "x.gguf", KINDS["F32"])
    if isinstance(wanted, set):
        assert load(str(tmp_path / "x.gguf"), CPU).stop_ids == wanted
    else:
        with pytest.raises(UserError, match=wanted):
            load(str(tmp_path / "x.gguf"), CPU)


def test_other_tokenizers_are_refused() -> None:
    def said(tokenizer: Any, rows: int = 400) -> str:
        with pytest.raises(UserError) as caught:
            add_vocabulary(gguf.GGUFWriter(None, "llama"), tokenizer, rows, "x")
        return str(caught.value)

    assert "does not know (its step is Punctuation)" in said(byte_level(pre_tokenizers.Punctuation(), BYTES))
    assert "does not know" in said(byte_level(split(r"\w+"), BYTES))
    assert "they do not fit" in said(byte_level(WORDS), rows=200)
    assert "does not know" in said(byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)))
    lower = byte_level(WORDS)
    lower.backend_tokenizer.normalizer = normalizers.Lowercase()
    assert "changes texts (Lowercase)" in said(lower)
    unigram = Tokenizer(models.Unigram([("a", -1.0), ("b", -2.0)], unk_id=0))
    assert "only BPE" in said(transformers.PreTrainedTokenizerFast(tokenizer_object=unigram))


def test_numbers_beyond_f16_are_refused(tmp_path: Path) -> None:
    lm = tiny("llama")
    with torch.no_grad():
        lm.model.get_input_embeddings().weight[0, 0] = 1e6
    with pytest.raises(UserError, match="F16 cannot hold"):
        write_gguf(lm, tmp_path / "x.gguf", KINDS["F16"])


@pytest.mark.slow
def test_a_pretrained_model_writes_the_same_text(gguf: Path, tmp_path: Path) -> None:
    lm = load(str(gguf), CPU)
    write_gguf(lm, tmp_path / "x.gguf", KINDS["F16"])
    texts = (
        "I'd say: 12 + 345 = 357.\n",
        "hello  world\n\n1234567 x   y",
        " é 🚀 \t tab 中文字",
        "def f(x):\n    return x**2\n",
    )
    ids = lm.tokenizer("The capital of France is").input_ids
    model: Any = lm.model
    with torch.no_grad():
        wanted = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0, len(ids) :]
    with LlamaCpp(tmp_path / "x.gguf") as llama:
        for text in texts:
            assert llama.tokens(text) == lm.tokenizer(text).input_ids
        assert llama.greedy(ids, 12) == lm.tokenizer.decode(wanted, skip_special_tokens=True)
        found = llama.logprobs(ids, model.config.vocab_size)
        assert (found - logprobs(lm, ids)).abs().max() < 0.1
    write_gguf(lm, tmp_path / "x.Q8_0.gguf", KINDS["Q8_0"])
    with LlamaCpp(tmp_path / "x.Q8_0.gguf") as llama:
        assert divergence(logprobs(lm, ids), llama.logprobs(ids, model.config.vocab_size)) < CLOSE
    assert math.isfinite(float(found.max()))
