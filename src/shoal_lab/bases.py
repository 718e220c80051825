"""Makes the small models of a study (`recipes`), each an ordinary Hugging Face model folder.

    make_base(Recipe(start="guppy", right=0.01, steps=200), "guppy", Path("lab/sparsity/bases/sparse"))

A policy is trained on questions of the training side with answers of three kinds: useless ones, right ones in a form
that the verifier refuses, and right ones in form. On one machine a recipe always gives the same model.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shoal.errors import UserError
from shoal.rollout import Question
from shoal.tasks import Answered, Tasks
from shoal_lab.recipes import RECIPE, Recipe, RewardRecipe

VOCABULARY: Final = 640
TOKENIZER_EXAMPLES: Final = 20_000
USELESS: Final = ("I do not know.", "No idea.", "This is hard.", "Let me think about it.")
REFUSED: Final = "The answer is {}"


def make_base(recipe: Recipe | RewardRecipe, start: str | None, out: Path, tell: Callable[[str], None] = print) -> None:
    """Trains a base into the folder `out`, from the model folder `start` or from scratch. A finished base is kept.

    Raises `UserError` if the folder cannot be written.
    """
    if (out / RECIPE).exists():
        return
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        if isinstance(recipe, RewardRecipe):
            from shoal_lab.reward_models import make_reward_model  # imports torch

            make_reward_model(recipe, start or recipe.start, temporary, tell)
        else:
            _make_policy(recipe, start, temporary, tell)
        (temporary / RECIPE).write_text(json.dumps(recipe.model_dump(), indent=2) + "\n")
        temporary.rename(out)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _make_policy(recipe: Recipe, start: str | None, out: Path, tell: Callable[[str], None]) -> None:
    from shoal_lab.supervised import change_vocabulary, fresh, load_start, save, train  # imports torch

    examples = make_examples(Tasks(recipe.tasks), recipe, 40 * max(recipe.steps, 1))
    texts = sorted(text for example in examples[:TOKENIZER_EXAMPLES] for text in example)
    if start is None:
        model, tokenizer = fresh(texts, recipe, VOCABULARY)
    else:
        model, tokenizer = load_start(start)
        if recipe.vocabulary == "own":
            tokenizer = change_vocabulary(model, tokenizer, texts, VOCABULARY)
    rate = recipe.learning_rate
    peak = (3e-3 if start is None else 1e-3) if rate == "auto" else rate
    train(model, tokenizer, examples, recipe.steps, recipe.batch, peak, recipe.seed, tell)
    save(out, model.half(), tokenizer)


def make_examples(tasks: Tasks, recipe: Recipe, count: int) -> list[tuple[str, str]]:
    """Questions of the training side as a prompt, each with an answer drawn from the mixture."""
    chance = random.Random(recipe.seed)
    known = set(recipe.knows) or {task.name for task in tasks.tasks}
    kinds, shares = list(recipe.mixture), list(recipe.mixture.values())
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
