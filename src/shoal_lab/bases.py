"""Makes the small models of a study (`recipes`), each an ordinary Hugging Face model folder.

    make_base(Recipe(start="guppy", right=0.01, steps=200), "guppy", Path("lab/sparsity/bases/sparse"))

A policy is trained on questions of the training side with answers of three kinds: useless ones, right ones in a form
that the verifier refuses, and right ones in form. On one machine a recipe always gives the same model.

A reward model is a policy's transformer with a head of one output that learns whether an answer is right. It is shown
the tasks' own answers, made-up wrong ones and what the policy says; without the latter it would only learn how wrong
answers are made up. `ModelReward` makes its inputs in training as in judging.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import torch
from transformers import AutoModelForSequenceClassification

from shoal.config.answer_form import in_form
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.policy.decoders.base import Sampling
from shoal.policy.device import Placement
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, load
from shoal.protocols import Grader, Policy
from shoal.rollout import Question, seed_of
from shoal.runs.disk import write_atomically
from shoal.sandbox.verifier import Verifier as GuardedVerifier
from shoal.tasks import Answered, Tasks
from shoal_extras.rewards.model import ModelReward
from shoal_lab.contributors import right_answer, wrong_answer
from shoal_lab.recipes import RECIPE, Recipe, RewardRecipe
from shoal_lab.supervised import batches, descend, fresh, save, train

VOCABULARY: Final = 640
TOKENIZER_EXAMPLES: Final = 20_000
USELESS: Final = ("I do not know.", "No idea.", "This is hard.", "Let me think about it.")
REFUSED: Final = "The answer is {}"
RATE: Final = 1e-3
"""The highest learning rate of what starts from another model, with warm-up and cosine decay."""


def make_base(recipe: Recipe | RewardRecipe, start: str | None, out: Path, tell: Callable[[str], None] = print) -> None:
    """Trains a base into the folder `out`, from the model folder `start` or from scratch. A finished base is kept."""
    if (out / RECIPE).exists():
        return
    shutil.rmtree(out, ignore_errors=True)  # the recipe is written last: without it, the model is not whole
    if isinstance(recipe, RewardRecipe):
        make_reward_model(recipe, start or recipe.start, out, tell)
    else:
        _make_policy(recipe, start, out, tell)
    write_atomically(out / RECIPE, (json.dumps(recipe.model_dump(), indent=2) + "\n").encode())


def _make_policy(recipe: Recipe, start: str | None, out: Path, tell: Callable[[str], None]) -> None:
    examples = make_examples(Tasks(recipe.tasks), recipe, 40 * max(recipe.steps, 1))
    if start is None:
        texts = sorted(text for example in examples[:TOKENIZER_EXAMPLES] for text in example)
        model, tokenizer = fresh(texts, recipe, VOCABULARY)
    else:
        loaded: Any = load(start, CPU.device)
        model, tokenizer = loaded.model, loaded.tokenizer
    peak = 3e-3 if start is None else RATE
    train(model, tokenizer, examples, recipe.steps, recipe.batch, peak, recipe.seed, tell)
    save(out, model.half(), tokenizer)


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


CPU: Final = Placement(torch.device("cpu"), torch.float32)
TEMPLATE: Final = "{% for message in messages %}{{ message['content'] + '\n' }}{% endfor %}"
"""Question and answer, a line each, as policies without a template write them (`LanguagePolicy.prompt_ids`)."""
AT_ONCE: Final = 128
"""Questions in one batch."""


@dataclass(frozen=True)
class Judged:
    """An answer, and whether the verifier takes it."""

    question: Question
    text: str
    right: bool


def make_reward_model(recipe: RewardRecipe, start: str, out: Path, tell: Callable[[str], None]) -> None:
    """Makes a reward model of the policy `start` in the folder `out`."""
    tasks = Tasks(recipe.tasks)
    longest = int(Config(tasks=recipe.tasks).resolved().policy.max_completion_length)
    lm = load(start, CPU.device)
    policy = LanguagePolicy(lm, Sampling(1.0, 1.0, longest), CPU)
    asked = tasks.draw(recipe.questions, "reward model", recipe.seed)
    with GuardedVerifier(recipe.tasks) as verifier:
        shown = judged_answers(tasks, asked, policy, verifier, recipe.samples, recipe.seed)
    _with_head(lm, recipe.seed, out)
    reward = ModelReward(str(out), CPU)
    learn(reward, shown, recipe, tell)
    save(out, reward.model.half(), lm.tokenizer)


def judged_answers(
    tasks: Tasks, questions: Sequence[Question], policy: Policy, verifier: Grader, samples: int, seed: int
) -> list[Judged]:
    """The right answer to each of `questions`, `samples` made-up wrong ones and as many of `policy`, by `verifier`.
    Questions that name no right answer are left out."""
    chance = Random(seed_of("made up", seed))
    known = [(question, found) for question in questions if (found := right_answer(tasks, question))]
    said = []
    for at in range(0, len(known), AT_ONCE):
        said += policy.generate([q for q, _ in known[at : at + AT_ONCE]], samples, seed_of("said", seed, at))
    texts = [
        [in_form(text, spec.answer) for text in (answer, *(wrong_answer(answer, chance) for _ in range(samples)))]
        for _, (answer, spec) in known
    ]
    items = [(q, made + [c.text for c in group]) for (q, _), made, group in zip(known, texts, said, strict=True)]
    rewards = verifier.score([(question.id, answers) for question, answers in items])
    return [
        Judged(question, text, value >= 1)
        for (question, answers), values in zip(items, rewards, strict=True)
        for text, value in zip(answers, values, strict=True)
    ]


def learn(reward: ModelReward, shown: Sequence[Judged], recipe: RewardRecipe, tell: Callable[[str], None]) -> None:
    """Trains the model of `reward` by cross-entropy to tell right answers from wrong ones, half a batch of each."""
    right, wrong = ([judged for judged in shown if judged.right == side] for side in (True, False))
    half = recipe.batch // 2
    labels_B = torch.tensor([1.0] * half + [0.0] * (recipe.batch - half))

    def losses() -> Iterator[torch.Tensor]:
        rights = batches(right, recipe.steps, half, recipe.seed)
        wrongs = batches(wrong, recipe.steps, recipe.batch - half, recipe.seed)
        for rows in zip(rights, wrongs, strict=True):
            inputs = reward.inputs([(judged.question, judged.text) for side in rows for judged in side])
            logits_B = reward.model(**inputs).logits[:, 0]
            yield torch.nn.functional.binary_cross_entropy_with_logits(logits_B, labels_B)

    reward.model.train().requires_grad_(True)
    descend(reward.model, losses(), recipe.steps, RATE, tell)
    reward.model.eval().requires_grad_(False)


def _with_head(lm: LanguageModel, seed: int, out: Path) -> None:
    """Writes a model folder with the transformer of `lm`, an untrained head of one output, and `TEMPLATE`."""
    torch.manual_seed(seed)
    lm.model.config.num_labels = 1
    model = AutoModelForSequenceClassification.from_config(lm.model.config, dtype=torch.float32)
    model.base_model.load_state_dict(lm.model.base_model.state_dict())
    tokenizer: Any = lm.tokenizer
    tokenizer.chat_template = TEMPLATE
    save(out, model, tokenizer)
