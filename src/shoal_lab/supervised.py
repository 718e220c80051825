"""Supervised training of small models: next-token prediction of answers."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from shoal.rollout import seed_of
from shoal_lab.recipes import Recipe

T = TypeVar("T")


def fresh(texts: Sequence[str], recipe: Recipe, vocabulary: int) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """An untrained Llama, with a tokenizer trained on `texts`, which must be sorted: their order decides ties."""
    torch.manual_seed(recipe.seed)
    tokenizer = train_tokenizer(texts, vocabulary)
    size = recipe.hidden_size
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size,
        intermediate_size=3 * size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=size // 32,
        num_key_value_heads=size // 32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config), tokenizer


def save(out: Path, model: Any, tokenizer: Any) -> None:
    """Writes a model folder."""
    logging.disable_progress_bar()  # the study has one of its own
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def batches(examples: Sequence[T], steps: int, batch: int, seed: int) -> Iterator[list[T]]:
    """Random examples for each step."""
    chance = random.Random(seed_of("order", seed))
    for _ in range(steps):
        yield chance.choices(examples, k=batch)


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE, each digit alone, merges across words."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<eos>"]
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special, initial_alphabet=sorted(alphabet))
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", eos_token="<eos>", prompt_format="lines")


def train(
    model: Any,
    tokenizer: Any,
    examples: Sequence[tuple[str, str]],
    steps: int,
    batch: int,
    learning_rate: float,
    seed: int,
    tell: Callable[[str], None],
) -> None:
    """Trains on the answers alone (`descend`)."""
    if not steps:
        return
    encoded = [
        (tokenizer(question).input_ids, [*tokenizer(answer).input_ids, tokenizer.eos_token_id])
        for question, answer in examples
    ]
    losses = (_loss(model, tokenizer.pad_token_id, rows) for rows in batches(encoded, steps, batch, seed))
    descend(model, losses, steps, learning_rate, tell)


def descend(
    model: Any, losses: Iterable[torch.Tensor], steps: int, learning_rate: float, tell: Callable[[str], None]
) -> None:
    """A step of AdamW on each of `losses`, with warm-up and cosine decay. `losses` must be lazy: each is computed after
    the step before it. `tell` gets a line of progress every 100 steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.05, betas=(0.9, 0.98))
    total = max(steps, 21)  # of fewer steps OneCycleLR has no warm-up, and divides by zero
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=total, pct_start=0.05)
    started = time.monotonic()
    for step, loss in enumerate(losses):
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step + 1 == steps:
            tell(f"step {step:5d}  loss {loss.item():.3f}  {time.monotonic() - started:4.0f} s")


def _loss(model: Any, pad: int, rows: Sequence[tuple[list[int], list[int]]]) -> torch.Tensor:
    """The mean over the tokens of the answers in `rows` of questions and answers."""
    width = max(len(q) + len(a) for q, a in rows)
    ids = torch.full((len(rows), width), pad)
    labels = torch.full((len(rows), width), -100)
    for row, (question, answer) in enumerate(rows):
        whole = torch.tensor(question + answer)
        ids[row, : len(whole)] = whole
        labels[row, len(question) : len(whole)] = whole[len(question) :]
    loss: torch.Tensor = model(ids, labels=labels).loss
    return loss
