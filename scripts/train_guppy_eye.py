"""Makes `guppy-eye`, the vision-language model that ships with shoal: half a million parameters for `pictures`.

    python scripts/train_guppy_eye.py                       # ten minutes on two cores; writes src/shoal/guppy_eye
    python scripts/train_guppy_eye.py --out /tmp/eye --steps 300

Its tower first learns what is in each cell of a picture. Then, as in `train_guppy.py`, the model learns the tasks from
right answers, half of them in a form that the verifier refuses; then it learns to say seldom what it knows. Two runs on
one machine give the same weights.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections import Counter
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

from shoal.config.tasks import TasksConfig
from shoal.policy.loading import LanguageModel
from shoal.policy.vision import attach_vision
from shoal.rollout import Question
from shoal.tasks import Tasks
from shoal_extras.pictures.questions import CELL, SIZE, PictureTask
from shoal_lab.bases import REFUSED, USELESS
from shoal_lab.supervised import batches, descend, train_tokenizer

CARD = """\
---
license: apache-2.0
library_name: transformers
pipeline_tag: image-text-to-text
---
# guppy-eye

A LLaVA of half a million parameters: a SigLIP tower for pictures of 32 x 32 pixels before a Llama with a byte-level
vocabulary. It is for trying collective reinforcement learning with pictures, without a download and without a GPU. It
was trained, by `scripts/train_guppy_eye.py` of shoal, on questions of the suite `pictures`: first what is in each
cell of a picture, then right answers, then answers of which most say nothing, some are right in a form that the
verifier refuses ("The answer is 8"), and few are right in form. So it knows much of the tasks and seldom says so. It is
no evidence about vision or reasoning, and it is useless outside `pictures`.
"""
VOCABULARY = 360
POOL = 30_000
"""Questions that it is trained on."""
MIXTURES = ((0.0, 0.5, 0.5), (0.6, 0.3, 0.1))
"""Shares of useless, refused and right answers, in the first part of the training and in the second."""
RATES = (3e-3, 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "src/shoal/guppy_eye")
    parser.add_argument("--steps", type=int, default=700, help="of the first part; the second has a quarter of them")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    tasks = Tasks(TasksConfig(suite="pictures"))
    pool = tasks.draw(POOL, "guppy-eye", args.seed)
    golds = [tasks.answer(question.id) or "" for question in pool]
    texts = [f"{q.text}\n{form}" for q, gold in zip(pool, golds, strict=True) for form in (gold, REFUSED.format(gold))]
    torch.manual_seed(args.seed)
    lm = _fresh(sorted(texts[:8_000]))
    print(f"{lm.model.num_parameters():,} parameters")
    _learn_cells(lm, tasks, pool, args.steps // 2, args.batch, args.seed)
    for part, (mixture, rate) in enumerate(zip(MIXTURES, RATES, strict=True)):
        steps = args.steps // (1 if part == 0 else 4)
        losses = _losses(lm, pool, golds, mixture, steps, args.batch, args.seed + part)
        descend(lm.model, losses, steps, rate, print)
    _write(args.out, lm, {"suite": "pictures", "batch": args.batch, "steps": args.steps, "seed": args.seed})


def _learn_cells(lm: LanguageModel, tasks: Tasks, pool: Sequence[Question], steps: int, batch: int, seed: int) -> None:
    """Trains the tower and its projector to tell what is in each cell."""
    words = [_words(tasks, question) for question in pool]
    vocabulary = {word: place for place, word in enumerate(sorted({w for cells in words for c in cells for w in c}))}
    head = torch.nn.Linear(lm.model.config.text_config.hidden_size, len(vocabulary))
    vision = lm.vision
    assert vision is not None

    def losses() -> Iterator[torch.Tensor]:
        for rows in batches(range(len(pool)), steps, batch, seed):
            features = vision.features(lm.model, [picture for row in rows for picture in pool[row].pictures])
            said = torch.zeros(batch, len(words[0]), len(vocabulary))
            for place, row in enumerate(rows):
                for cell, found in enumerate(words[row]):
                    said[place, cell, [vocabulary[word] for word in found]] = 1
            logits = head(torch.nn.functional.rms_norm(torch.stack(features), [head.in_features]))
            yield torch.nn.functional.binary_cross_entropy_with_logits(logits, said)

    lm.model.eye_head = head  # so that its weights are trained with the model's
    descend(lm.model, losses(), steps, RATES[0], print)
    del lm.model.eye_head


def _words(tasks: Tasks, question: Question) -> list[set[str]]:
    """What is in each cell of a picture: colours, shapes, digits, numbers of dots, heights of bars."""
    task, _ = tasks.lookup(question.id)
    assert isinstance(task, PictureTask)
    side = SIZE // CELL
    found: list[set[str]] = [set() for _ in range(side * side)]
    inside = Counter((y // CELL) * side + x // CELL for _, x, y in task.drawn(question.id))
    for what, x, y in task.drawn(question.id):
        cell = (y // CELL) * side + x // CELL
        if task.name == "count_dots":
            found[cell].add(f"{inside[cell]} dots")
        elif task.name == "compare_bars":
            found[cell] |= {f"{2 * (x % CELL) // CELL} {word}" for word in what.split()}
        else:
            found[cell] |= set(what.split())
    return found


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
        asked, kinds = [pool[row] for row in rows], chance.choices(range(3), mixture, k=batch)
        said = [
            (chance.choice(USELESS), REFUSED.format(golds[row]), golds[row])[kind]
            for row, kind in zip(rows, kinds, strict=True)
        ]
        answers = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in said]
        whole = [_prompt(lm, question.text) + answer for question, answer in zip(asked, answers, strict=True)]
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
