"""Small models made for a study: what they know, and how readily they say it, is chosen.

    [bases.sparse]                 # in a study file; `policy.model = ["base:sparse"]` takes it
    start = "guppy"
    right = 0.01                   # about 0.0023 of held-out pass@1 at the start
    steps = 200

    [bases.taste]                  # a reward model; `model = "base:taste"` in `[[rewards]]` takes it
    kind = "reward"
    start = "sparse"

Supervised training on questions of the training side with answers of three kinds: useless ones, right ones in a form
that the verifier refuses, and right ones in form. guppy itself is made so (scripts/train_guppy.py). A base is a
function of its recipe on one machine, and an ordinary Hugging Face model folder. Reward models: `reward_models`.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from shoal.config.policy import GUPPY
from shoal.config.section import Section
from shoal.config.tasks import TasksConfig
from shoal.rollout import Question, seed_of
from shoal.tasks import Tasks
from shoal.tasks.reasoning import ReasoningTask

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

BASE: Final = "base:"
"""What a model's name begins with, if a study makes it."""
QUALITY: Final = "quality.json"
"""How well a reward model judges, in its folder."""
VOCABULARY: Final = 640
TOKENIZER_EXAMPLES: Final = 20_000
USELESS: Final = ("I do not know.", "No idea.", "This is hard.", "Let me think about it.")
REFUSED: Final = "The answer is {}"


class Recipe(Section):
    """How a policy is made."""

    kind: Literal["policy"] = "policy"
    start: str = ""
    """The base it goes on from, or guppy; nothing: from scratch, with a vocabulary of its own."""
    tasks: TasksConfig = TasksConfig()
    """What it is asked."""
    knows: list[str] = []
    """The tasks of which it gets right answers, in form or not; none named: all. Of the others it gets useless ones."""
    right: float = Field(0.1, ge=0, le=1)
    """The share of right answers in form."""
    refused: float = Field(0.3, ge=0, le=1)
    """The share of right answers in a form that the verifier refuses."""
    forms: list[str] = Field(["{}"], min_length=1)
    """What a right answer in form looks like, {} being the answer; drawn in turn."""
    steps: int = Field(1500, ge=0)
    """Batches."""
    batch: int = Field(96, ge=1)
    """Examples in each."""
    learning_rate: Literal["auto"] | float = "auto"
    """The highest, with warm-up and cosine decay. auto: 3e-3 from scratch, 1e-3 otherwise."""
    hidden_size: int = Field(128, ge=32)
    """Of a base from scratch: 128 is guppy's."""
    layers: int = Field(4, ge=1)
    """Of a base from scratch."""
    seed: int = 0
    """Of examples and their order."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.right + self.refused > 1:
            raise ValueError("right and refused are shares of one whole")
        return self

    @property
    def mixture(self) -> dict[str, float]:
        return {"useless": 1 - self.right - self.refused, "refused": self.refused, "right": self.right}


class RewardRecipe(Section):
    """How a reward model is made: by showing a policy right and wrong answers, its own among them."""

    kind: Literal["reward"]
    start: str = Field(min_length=1)
    """The base that it goes on from, or guppy: it is shown what that says."""
    tasks: TasksConfig = TasksConfig()
    """What is asked."""
    questions: int = Field(1000, ge=1)
    """Questions of the training side of which it is shown answers. The fewer, the less it knows of others."""
    samples: int = Field(4, ge=1)
    """Answers to each that `start` gives, and as many that are made up and wrong. The right one is shown too."""
    steps: int = Field(300, ge=1)
    """Batches."""
    batch: int = Field(96, ge=2)
    """Answers in each, half of them right."""
    learning_rate: float = Field(1e-3, gt=0)
    """The highest, with warm-up and cosine decay."""
    seed: int = 0
    """Of questions, answers and their order."""


def _kind(recipe: Any) -> str:
    kind: str = recipe.get("kind", "policy") if isinstance(recipe, dict) else recipe.kind
    return kind


AnyRecipe = Annotated[
    Annotated[Recipe, Tag("policy")] | Annotated[RewardRecipe, Tag("reward")],
    Discriminator(_kind),
]


def make_base(recipe: Recipe | RewardRecipe, start: str | None, out: Path, tell: Callable[[str], None] = print) -> None:
    """Trains a base into the folder `out`; with `start` (a model folder) from there. A base that is there is kept."""
    if (out / "recipe.json").exists():
        return
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    if isinstance(recipe, RewardRecipe):
        from shoal.apps.lab.reward_models import make_reward_model  # torch, only now, as in the other

        make_reward_model(recipe, start or recipe.start, temporary, tell)
    else:
        _make_policy(recipe, start, temporary, tell)
    (temporary / "recipe.json").write_text(json.dumps(recipe.model_dump(), indent=2) + "\n")
    temporary.rename(out)


def _make_policy(recipe: Recipe, start: str | None, out: Path, tell: Callable[[str], None]) -> None:
    from shoal.apps.lab.supervised import fresh, load_start, save, train

    tasks = Tasks(recipe.tasks)
    examples = make_examples(tasks, recipe, 40 * max(recipe.steps, 1))
    model: LlamaForCausalLM
    tokenizer: PreTrainedTokenizerFast
    if start is None:
        texts = sorted(text for example in examples[:TOKENIZER_EXAMPLES] for text in example)
        model, tokenizer = fresh(texts, recipe, VOCABULARY)
    else:
        model, tokenizer = load_start(start)
    rate = recipe.learning_rate
    peak = (3e-3 if start is None else 1e-3) if rate == "auto" else rate
    train(model, tokenizer, examples, recipe.steps, recipe.batch, peak, recipe.seed, tell)
    save(model, tokenizer, out)


def in_order(bases: Mapping[str, Recipe | RewardRecipe]) -> list[list[str]]:
    """The bases in turns: those of a turn need none but earlier ones. Raises `ValueError` for one that nobody makes;
    nothing is made from a reward model."""
    turns: list[list[str]] = []
    made: set[str] = {"", GUPPY}
    left = dict(bases)
    while left:
        turn = [name for name, recipe in left.items() if recipe.start in made]
        if not turn:
            missing = ", ".join(f"{name} from {recipe.start!r}" for name, recipe in left.items())
            raise ValueError(f"there is nothing to make these from: {missing}")
        turns.append(turn)
        made |= {name for name in turn if bases[name].kind == "policy"}
        left = {name: recipe for name, recipe in left.items() if name not in turn}
    return turns


def make_examples(tasks: Tasks, recipe: Recipe, count: int) -> list[tuple[str, str]]:
    """Questions of the training side as a prompt, each with an answer drawn from the mixture."""
    chance = random.Random(recipe.seed)
    by_name = {task.name: task for task in tasks.tasks}
    known = set(recipe.knows) or by_name.keys()
    kinds, shares = list(recipe.mixture), list(recipe.mixture.values())
    examples = []
    for question in tasks.draw(count, "guppy", recipe.seed):
        task = by_name[question.id.task]
        assert isinstance(task, ReasoningTask)
        gold = task.entry(question.id.seed, question.id.index)["answer"]
        kind = chance.choices(kinds, shares)[0] if task.name in known else "useless"
        answers = {
            "useless": chance.choice(USELESS),
            "refused": REFUSED.format(gold),
            "right": recipe.forms[0 if len(recipe.forms) == 1 else chance.randrange(len(recipe.forms))].format(gold),
        }
        examples.append((prompt(question), answers[kind]))
    return examples


def prompt(question: Question) -> str:
    """As `LanguagePolicy.prompt_ids` writes it for a model without a chat template."""
    return question.text.rstrip() + "\n"


def order_of(seed: int) -> random.Random:
    """Which examples come when."""
    return random.Random(seed_of("order", seed))


def batches(examples: Sequence[Any], steps: int, batch: int, seed: int) -> Any:
    """What each step trains on."""
    chance = order_of(seed)
    for _ in range(steps):
        yield chance.choices(examples, k=batch)
