"""A round of questions with pictures, beside a step of TRL's GRPOTrainer, with guppy-eye.

    python pictures.py WORKLOAD OUT.json [--repeats N]

guppy-eye is a LLaVA of transformers, so TRL takes it as it is, with a processor of its image processor and tokenizer.
It takes 4 tokens for a picture; with smaller patches, drawn at random, it takes as many as larger models do.

Equal are the model and its weights, questions of `--suite pictures` and their pixels, the tokens of prompts and
answers, the longest answer, rewards, advantages, the gradient (`beside_trl.py` asserts all of them on a batch of
TRL's), threads, and the precision. Each draws its own answers in a timed step. What cannot be equal: TRL reads its
pictures from a column of a data set in each step, shoal has drawn them before the first round.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from beside_trl import Shoal, Timed, lively, settings
from datasets import Dataset
from PIL import Image
from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer, LlavaForConditionalGeneration, LlavaProcessor

from shoal.config.tasks import PICTURES, TasksConfig

LONGEST = 16
EYE = Path(str(files("shoal") / "guppy_eye"))
WORKS = {"pictures of 256 tokens": 2, "pictures of 64 tokens": 4, "pictures of 4 tokens": 16}
"""Pixels of a patch, in each direction: 32 x 32 of them are as many tokens as in Gemma 3, in SmolVLM, in guppy-eye."""
CHAT = """
{%- for m in messages %}
    {%- if m.content is string %}{{ m.content }}
    {%- else %}
        {%- for part in m.content %}{{ "<image>\n" if part.type == "image" else part.text }}{% endfor %}
    {%- endif %}
    {{- "<eos>" if m.role == "assistant" else "\n" }}
{%- endfor %}"""
"""Each picture and each text in a line of its own, as guppy-eye reads them."""


def with_patches(pixels: int, folder: Path) -> None:
    """Writes guppy-eye with a vision tower of patches of `pixels` x `pixels`, each of which becomes a token; what has
    another shape in it is drawn at random."""
    config = AutoConfig.from_pretrained(EYE)
    config.vision_config.patch_size = pixels
    config.image_seq_length = (config.vision_config.image_size // pixels) ** 2
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration.from_pretrained(
        EYE, config=config, dtype=torch.float32, ignore_mismatched_sizes=True
    )
    model.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"):
        shutil.copy(EYE / file, folder)


def beside(pixels: int, folder: Path, repeats: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with_patches(pixels, folder)
    ours = Shoal(str(folder), TasksConfig(suite=PICTURES), LONGEST)
    by_name = {task.name: task for task in ours.tasks.tasks}
    rows = [
        {
            "prompt": [{"role": "user", "content": q.text}],
            "image": Image.frombytes("RGB", (q.pictures[0].width, q.pictures[0].height), q.pictures[0].rgb),
            "number": number,
        }
        for number, q in enumerate(ours.questions)
    ]

    def reward(completions: list[Any], number: list[int], **_row: Any) -> list[float]:
        """That of the task."""
        asked = [ours.questions[each].id for each in number]
        texts = [completion[0]["content"] for completion in completions]
        return lively([by_name[id.task].score(id, [text])[0] for id, text in zip(asked, texts, strict=True)])

    tokenizer = AutoTokenizer.from_pretrained(folder)
    processor = LlavaProcessor(
        AutoImageProcessor.from_pretrained(folder),
        tokenizer,
        patch_size=pixels,
        vision_feature_select_strategy="full",
        chat_template=CHAT,
        num_additional_image_tokens=0,
    )
    trainer = Timed(
        ours,
        model=str(folder),
        processing_class=processor,
        reward_funcs=reward,
        train_dataset=Dataset.from_list(rows),
        args=settings(folder / "trl", repeats + 1, LONGEST),
    )
    trainer.train()
    ours.verifier.close()
    return trainer.figures()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    figures = {}
    for name, pixels in WORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = beside(pixels, Path(folder), args.repeats)
    args.out.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
