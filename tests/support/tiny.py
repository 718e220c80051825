"""Tiny models with random weights, a tiny tokenizer, and log-probabilities worked out the plain way."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    OlmoeConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3MoeConfig,
)

from shoal.policy.decoders.base import Sampling
from shoal.policy.device import Placement
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel
from shoal.rollout import Completion, FinishReason, Message, Part, Question, QuestionId, Rollout, Scored

CPU = Placement(torch.device("cpu"), torch.float32)
EXPERTS = ("qwen3_moe", "olmoe")
"""Mixtures of 4 experts of which each token takes 2."""
ARCHITECTURES = ("llama", "qwen2", "gemma3", "gpt2", *EXPERTS)
WINDOW = 5
"""Sliding window of the tiny gemma3: shorter than any row in these tests."""

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = ("the quick brown fox jumps over the lazy dog", "2 + 2 = 4, and 10 - 3 = 7", "question: answer. yes or no")


@cache
def _backend(specials: tuple[str, ...]) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return str(tokenizer.to_str())


def make_tokenizer(*, chat: bool = False) -> PreTrainedTokenizerFast:
    """A byte-level BPE with <pad> (0) and <eos> (1); with `chat`, ChatML whose turns end by <|im_end|>."""
    specials = ("<pad>", "<eos>", "<|im_start|>", "<|im_end|>") if chat else ("<pad>", "<eos>")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_backend(specials)),
        pad_token="<pad>",
        eos_token="<|im_end|>" if chat else "<eos>",
        clean_up_tokenization_spaces=False,
        prompt_format="lines",
    )
    if chat:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<eos>", "<|im_start|>"]})
        tokenizer.chat_template = CHATML
    return tokenizer


def add_marker(tokenizer: PreTrainedTokenizerFast, marker: str) -> int:
    """Registers `marker` as an added token that is not called special, as some published tokenizers do."""
    tokenizer.add_tokens([AddedToken(marker, special=False, normalized=False)])
    return len(tokenizer) - 1


def make_model(architecture: str = "llama", vocab_size: int = 300, seed: int = 0, **options: Any) -> Any:
    """Two layers of 16 with random weights, large enough that attention and positions matter."""
    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 0,
    }
    if architecture == "gpt2":
        config: Any = GPT2Config(
            vocab_size=vocab_size,
            n_embd=16,
            n_layer=2,
            n_head=2,
            n_positions=128,
            initializer_range=0.3,
            bos_token_id=None,
            eos_token_id=1,
            **options,
        )
    elif architecture == "gemma3":
        layers = ["sliding_attention", "full_attention"]
        config = Gemma3TextConfig(**common, head_dim=8, sliding_window=WINDOW, layer_types=layers, **options)
    elif architecture == "gemma2":  # which squeezes its scores
        layers = ["sliding_attention", "full_attention"]
        capped = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 10.0, "query_pre_attn_scalar": 8}
        config = Gemma2Config(**common, head_dim=8, sliding_window=WINDOW, layer_types=layers, **capped, **options)
    elif architecture == "grouped":  # several heads of keys and values, each for several queries
        config = LlamaConfig(**common | {"num_attention_heads": 4, "num_key_value_heads": 2}, **options)
    elif architecture in EXPERTS:
        experts = {"num_experts": 4, "num_experts_per_tok": 2, **options}
        if architecture == "qwen3_moe":
            config = Qwen3MoeConfig(
                **{**common, "head_dim": 8, "moe_intermediate_size": 8, "norm_topk_prob": True, **experts}
            )
        else:
            config = OlmoeConfig(**{**common, "intermediate_size": 8, **experts})
    else:
        config = {"llama": LlamaConfig, "qwen2": Qwen2Config}[architecture](**common, **options)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too, which start as constants
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def in_double(model: Any) -> Any:
    """The model in float64, for which torch has no grouped products of experts."""
    if model.config.model_type in EXPERTS:
        model.set_experts_implementation("eager")
    return model.double()


def make_lm(architecture: str = "llama", *, chat: bool = False, double: bool = False, **options: Any) -> LanguageModel:
    tokenizer = make_tokenizer(chat=chat)
    model = make_model(architecture, len(tokenizer), **options)
    eos_id = int(tokenizer.eos_token_id)
    model.config.eos_token_id = model.generation_config.eos_token_id = eos_id
    name = f"tiny-{architecture}"
    return LanguageModel(name, in_double(model) if double else model, tokenizer, frozenset([eos_id]), eos_id, 0)


def make_policy(
    architecture: str = "llama",
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_completion_length: int = 12,
    **options: Any,
) -> LanguagePolicy:
    return LanguagePolicy(make_lm(architecture, **options), Sampling(temperature, top_p, max_completion_length), CPU)


def clone(policy: LanguagePolicy) -> LanguagePolicy:
    """The same policy with weights of its own."""
    lm = policy.lm
    model = copy.deepcopy(lm.model)
    copied = LanguageModel(lm.name, model, lm.tokenizer, lm.stop_ids, lm.eos_id, lm.pad_id)
    return LanguagePolicy(copied, policy.sampling, policy.placement)


def make_question(text: str = "2 + 2 =", system: str = "") -> Question:
    prompt = (Message("user", text),)
    return Question(QuestionId("t", "1", "c", 0, 0), (Message("system", system), *prompt) if system else prompt)


def make_scored(text: str, answers: Sequence[Completion | str | Sequence[int]], rewards: Sequence[float]) -> Scored:
    """A rollout; an answer given as text ended by itself, one given as tokens was sampled here and ended if by 1."""
    question = make_question(text)
    completions = []
    for answer in answers:
        if isinstance(answer, str):
            completions.append(Completion.of(answer))
        elif isinstance(answer, Completion):
            completions.append(answer)
        else:
            reason = FinishReason.stop if answer and answer[-1] == 1 else FinishReason.length
            completions.append(Completion((Part("sampled"),), reason, tuple(answer)))
    rollout = Rollout(question.id, question.hash, tuple(completions), "ada", 0)
    return Scored(rollout, question, tuple(rewards))


def plain_logits(model: Any, prompt: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
    """(T, V): the logits that predict each token of `answer`, by a forward pass of this one sequence alone."""
    ids = torch.tensor([[*prompt, *answer]])
    logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
    return logits[0, len(prompt) - 1 : -1]


def plain_logprobs(model: Any, prompt: Sequence[int], answer: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    """(T,): the log-probability of each token of `answer`, by a forward pass of this one sequence alone."""
    logits = plain_logits(model, prompt, answer) / temperature
    chosen = logits[torch.arange(len(answer)), torch.tensor(answer, dtype=torch.long)]
    return chosen - torch.logsumexp(logits, -1)


class InDouble(TorchFunctionMode):
    """Within it, what a model computes in float32 whatever its weights are (norms, softmax) is computed in float64."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        wider = {name: torch.float64 if value is torch.float32 else value for name, value in (kwargs or {}).items()}
        return func(*(torch.float64 if value is torch.float32 else value for value in args), **wider)


def limit(
    learner: Any, *, max_grad_norm: float | None = None, budget: int | None = None, checkpoint_tokens: int | None = None
) -> Any:
    """`learner` with other limits: the longest gradient, the tokens in a pass, those above which it keeps less."""
    learner.max_grad_norm = learner.max_grad_norm if max_grad_norm is None else max_grad_norm
    learner.token_budget = learner.token_budget if budget is None else budget
    if checkpoint_tokens is not None:
        learner.checkpointing.above = checkpoint_tokens
    return learner


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def assert_same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float = 1e-5) -> None:
    """Every tensor within `tolerance` of the other, relative to its norm; what is nought save rounding may differ."""
    assert actual.keys() == expected.keys()
    whole = torch.stack([e.norm() for e in expected.values()]).norm()
    for name, tensor in expected.items():
        error = (actual[name] - tensor).norm()
        assert error <= tolerance * tensor.norm() + 0.01 * tolerance * whole, f"{name}: {error} of {tensor.norm()}"
