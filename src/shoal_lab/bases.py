"""Makes the small models of a study (`recipes`), each an ordinary Hugging Face model folder.

    make_base(Recipe(start="guppy", right=0.01, steps=200), "guppy", Path("lab/sparsity/bases/sparse"))

A policy is trained on questions of the training side with answers of three kinds: useless ones, right ones in a form
that the verifier refuses, and right ones in form. On one machine a recipe always gives the same model.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import torch

from shoal.errors import UserError
from shoal.policy.loading import load
from shoal.rollout import Question
from shoal.runs.disk import write_atomically
from shoal.tasks import Answered, Tasks
from shoal_lab.recipes import RECIPE, Recipe
from shoal_lab.supervised import fresh, save, train

VOCABULARY: Final = 640
TOKENIZER_EXAMPLES: Final = 20_000
USELESS: Final = ("I do not know.", "No idea.", "This is hard.", "Let me think about it.")
REFUSED: Final = "The answer is {}"
RATE: Final = 1e-3
"""The highest learning rate of what starts from another model, with warm-up and cosine decay."""


def make_base(recipe: Recipe, start: str | None, out: Path, tell: Callable[[str], None] = print) -> None:
    """Trains a base into the folder `out`, from the model folder `start` or from scratch. A finished base is kept."""
    if (out / RECIPE).exists():
        return
    shutil.rmtree(out, ignore_errors=True)  # the recipe is written last: without it, the model is not whole
    examples = make_examples(Tasks(recipe.tasks), recipe, 40 * max(recipe.steps, 1))
    if start is None:
        texts = sorted(text for example in examples[:TOKENIZER_EXAMPLES] for text in example)
        model, tokenizer = fresh(texts, recipe, VOCABULARY)
    else:
        loaded: Any = load(start, torch.device("cpu"))
        model, tokenizer = loaded.model, loaded.tokenizer
    peak = 3e-3 if start is None else RATE
    train(model, tokenizer, examples, recipe.steps, recipe.batch, peak, recipe.seed, tell)
    save(out, model.half(), tokenizer)
    write_atomically(out / RECIPE, (json.dumps(recipe.model_dump(), indent=2) + "\n").encode())


def make_examples(tasks: Tasks, recipe: Recipe, count: int) -> list[tuple[str, str]]:
    """Questions of the training side as a prompt, each with an answer drawn from the mixture."""
    chance = Random(recipe.seed)
    known = set(recipe.knows) or {task.name for task in tasks.tasks}
    kinds, shares = ("useless", "refused", "right"), (1 - recipe.right - recipe.refused, recipe.refused, recipe.right)
    examples = []
    turns: dict[str, tuple[str, str]] = {}  # of each task, the question before and its right answer
    for question in tasks.draw(count, "guppy", recipe.seed):
        task, _ = tasks.lookup(question.id)
        if not isinstance(task, Answered):
            raise UserError(f"task {task.name!r} names no right answers: a base cannot be made of it")
        gold = task.answer(question.id) or ""
        kind = chance.choices(kinds, shares)[0] if task.name in known else "useless"
        answers = {
            "useless": chance.choice(USELESS),
            "refused": REFUSED.format(gold),
            "right": recipe.forms[0 if len(recipe.forms) == 1 else chance.randrange(len(recipe.forms))].format(gold),
        }
        asked, answer = prompt(question), answers[kind]
        before, other = turns.get(task.name, ("", answers["right"]))
        turns[task.name] = asked, answers["right"]
        if recipe.shown and chance.random() < recipe.shown:
            if chance.random() < 0.5:
                answer = chance.choice((answers["right"], other))
                asked = f"{asked}{answer}\n{asked}"
            elif before:
                asked = f"{before}{other}\n{asked}"
        examples.append((asked, answer))
    return examples


def prompt(question: Question) -> str:
    """The prompt that `LanguagePolicy.prompt_ids` makes for a model without a chat template."""
    return question.text.rstrip() + "\n"
