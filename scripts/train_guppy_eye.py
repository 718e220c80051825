"""Makes `guppy-eye`, the vision-language model that ships with shoal: half a million parameters for `pictures`.

    python scripts/train_guppy_eye.py                       # ten minutes on two cores; writes src/shoal/guppy_eye
    python scripts/train_guppy_eye.py --out /tmp/eye --steps 300

As in `train_guppy.py`, it first learns the tasks from right answers, most of them in a form that the verifier refuses,
and to describe pictures; then it learns to say seldom what it knows. Two runs on one machine give the same weights.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    SiglipImageProcessorPil,
    SiglipVisionConfig,
)

from shoal.apps.lab.bases import REFUSED, USELESS
from shoal.apps.lab.supervised import batches, descend, train_tokenizer
from shoal.config.tasks import TasksConfig
from shoal.policy.loading import LanguageModel
from shoal.policy.vision import attach_vision
from shoal.rollout import Question
from shoal.tasks import Tasks
from shoal.tasks.pictures.questions import CELL, SIZE, PictureTask

CARD = """\
---
license: apache-2.0
library_name: transformers
pipeline_tag: image-text-to-text
---
# guppy-eye

A LLaVA of half a million parameters: a SigLIP tower for pictures of 32 x 32 pixels before a Llama with a byte-level
vocabulary. It is for trying collective reinforcement learning with pictures, without a download and without a GPU. It
was trained, by `scripts/train_guppy_eye.py` of shoal, on questions of the suite `pictures`: first with right answers
and descriptions of the pictures, then with answers of which most say nothing, some are right in a form that the
verifier refuses ("The answer is 8"), and few are right in form. So it knows much of the tasks and seldom says so. It is
no evidence about vision or reasoning, and it is useless outside `pictures`.
"""
VOCABULARY = 400
POOL = 60_000
"""Questions that it is trained on."""
DESCRIBE = "What is there?"
MIXTURES = ((0.0, 0.3, 0.2, 0.5), (0.6, 0.3, 0.1, 0.0))
"""Shares of useless, refused and right answers and of descriptions, in the first part and in the second."""
RATES = (3e-3, 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "src/shoal/guppy_eye")
    parser.add_argument("--steps", type=int, default=2000, help="of the first part; the second has a twentieth of them")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    tasks = Tasks(TasksConfig(suite="pictures"))
    pool = tasks.draw(POOL, "guppy-eye", args.seed)
    golds = [tasks.answer(question.id) or "" for question in pool]
    drawn = [_drawn(tasks, question) for question in pool]
    texts = [f"{q.text}\n{form}" for q, gold in zip(pool, golds, strict=True) for form in (gold, REFUSED.format(gold))]
    torch.manual_seed(args.seed)
    lm = _fresh(sorted([*texts[:8_000], *drawn[:4_000]]))
    print(f"{lm.model.num_parameters():,} parameters")
    for part, (mixture, rate) in enumerate(zip(MIXTURES, RATES, strict=True)):
        steps = args.steps // (1 if part == 0 else 20)
        losses = _losses(lm, pool, golds, drawn, mixture, steps, args.batch, args.seed + part)
        descend(lm.model, losses, steps, rate, print)
    _write(args.out, lm, {"suite": "pictures", "batch": args.batch, "steps": args.steps, "seed": args.seed})


def _drawn(tasks: Tasks, question: Question) -> str:
    task, _ = tasks.lookup(question.id)
    assert isinstance(task, PictureTask)
    return task.drawn(question.id)


def _fresh(texts: Sequence[str]) -> LanguageModel:
    """An untrained model, with a tokenizer trained on `texts`."""
    tokenizer = train_tokenizer(texts, VOCABULARY - 1)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    image = int(tokenizer.convert_tokens_to_ids("<image>"))
    ends: dict[str, Any] = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = LlavaConfig(
        vision_config=SiglipVisionConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=3,
            num_attention_heads=2,
            image_size=SIZE,
            patch_size=CELL,
            vision_use_head=False,
        ),
        text_config=LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=3,
            max_position_embeddings=512,
            bos_token_id=None,
            **ends,
        ),
        image_token_index=image,
        image_seq_length=(SIZE // CELL) ** 2,
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
        tie_word_embeddings=True,
        **ends,
    )
    model: Any = LlavaForConditionalGeneration(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    processor = SiglipImageProcessorPil(size={"height": SIZE, "width": SIZE})
    attach_vision(model, tokenizer, processor, "guppy-eye")
    end = int(tokenizer.eos_token_id)
    return LanguageModel("guppy-eye", model, tokenizer, frozenset([end]), end, int(tokenizer.pad_token_id))


def _losses(
    lm: LanguageModel,
    pool: Sequence[Question],
    golds: Sequence[str],
    drawn: Sequence[str],
    mixture: Sequence[float],
    steps: int,
    batch: int,
    seed: int,
) -> Iterator[torch.Tensor]:
    """The mean over the tokens of answers drawn from the mixture, for each step."""
    chance = random.Random(seed)
    tokenizer: Any = lm.tokenizer
    vision = lm.vision
    assert vision is not None
    for rows in batches(range(len(pool)), steps, batch, seed):
        asked, kinds = [pool[row] for row in rows], chance.choices(range(4), mixture, k=batch)
        said = [
            (chance.choice(USELESS), REFUSED.format(golds[row]), golds[row], drawn[row])[kind]
            for row, kind in zip(rows, kinds, strict=True)
        ]
        answers = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in said]
        texts = [DESCRIBE if kind == 3 else question.text for question, kind in zip(asked, kinds, strict=True)]
        whole = [_prompt(lm, text) + answer for text, answer in zip(texts, answers, strict=True)]
        width = max(map(len, whole))
        ids, labels = torch.full((batch, width), lm.pad_id), torch.full((batch, width), -100)
        for row, (tokens, answer) in enumerate(zip(whole, answers, strict=True)):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            labels[row, len(tokens) - len(answer) : len(tokens)] = torch.tensor(answer)
        pictures = [picture for question in asked for picture in question.pictures]
        inputs = vision.own_inputs(ids, pictures)
        yield lm.model(**inputs, attention_mask=torch.ones_like(ids), labels=labels, use_cache=False).loss


@cache
def _prompt(lm: LanguageModel, text: str) -> list[int]:
    """A question behind its picture, as `LanguagePolicy.prompt_ids` writes it."""
    vision, tokenizer, count = lm.vision, lm.tokenizer, lm.model.config.image_seq_length
    assert vision is not None
    ids = tokenizer(f"{vision.written}\n{text}\n").input_ids
    place = ids.index(vision.image_id)
    return [*ids[:place], *[vision.image_id] * count, *ids[place + 1 :]]


def _write(out: Path, lm: LanguageModel, facts: dict[str, Any]) -> None:
    made = out.with_name(f".{out.name}.made")
    shutil.rmtree(made, ignore_errors=True)
    lm.model.half()
    lm.save(made)
    (made / "training.json").write_text(json.dumps({**facts, "mixtures": MIXTURES}, indent=2) + "\n")
    (made / "README.md").write_text(CARD)
    out.mkdir(parents=True, exist_ok=True)
    for path in made.iterdir():
        path.replace(out / path.name)
    made.rmdir()


if __name__ == "__main__":
    main()
