"""Finds out how a model is best asked, before it is trained.

    found = probe(policy, config.tasks, G=8, seconds=60, seed=0)
    best = recommend(found)                       # {"chain_sum": Found(...)}: of each task the best way to ask it

Each task is asked in each of `WAYS`, with training questions alone: what is chosen here is not reported on them. The
figure that counts is the share of live groups. A group whose answers are all right or all wrong teaches nothing.
"""

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from shoal.config.answer_form import extract
from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.evaluation.pass_at_k import Estimate, wilson
from shoal.protocols import Policy
from shoal.rollout import Completion, FinishReason, Question, seed_of
from shoal.sandbox.replay import attach_environments
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Task, Tasks
from shoal.tasks.create import create_task
from shoal.tasks.draw import QuestionFailed, labels
from shoal.tasks.environments.task import EnvironmentTask
from shoal.tasks.suites import specs_of
from shoal.tasks.task import right_answer

TAGGED = "Give the final answer between <answer> and </answer>."
MOST_QUESTIONS = 32
"""Of each task, in each way."""


@dataclass(frozen=True)
class Way:
    """A way of asking and answering."""

    name: str
    answer: str
    examples: int = 0
    system_prompt: str = ""

    def of(self, spec: TaskSpec) -> TaskSpec:
        """`spec`, asked in this way."""
        update = {"answer": self.answer, "examples": self.examples, "system_prompt": self.system_prompt}
        return spec.model_copy(update=update)


WAYS = (
    Way("question", "whole"),
    Way("question, last number", "last_number"),
    Way("question, tags", "tag", system_prompt=TAGGED),
    Way("3 examples", "whole", examples=3),
    Way("3 examples, last number", "last_number", examples=3),
    Way("3 examples, tags", "tag", examples=3),
)


@dataclass
class Found:
    """What the answers to one task were like, asked in one way."""

    spec: TaskSpec
    """The task as it was asked."""
    way: Way
    G: int
    """Answers to each question."""
    right: list[int] = field(default_factory=list)
    """For each question, how many answers got the full reward."""
    live: list[bool] = field(default_factory=list)
    """For each question, whether its answers' rewards differ."""
    in_form: int = 0
    """Answers in which an answer was found."""
    lengths: list[int] = field(default_factory=list)
    """Tokens of each answer; empty for an endpoint."""
    truncated: int = 0
    """Answers that were cut at the longest length."""

    def note(self, completions: Sequence[Completion], rewards: Sequence[float]) -> None:
        """Takes the answers to one question."""
        self.right.append(sum(reward >= 1 for reward in rewards))
        self.live.append(max(rewards) - min(rewards) > 1e-6)
        self.in_form += sum(extract(one.text, self.way.answer) is not None for one in completions)
        self.lengths += [len(one.token_ids) for one in completions if one.token_ids is not None]
        self.truncated += sum(one.finish_reason == FinishReason.length for one in completions)

    @property
    def pass_at_1(self) -> Estimate:
        """The share of right answers, with Wilson's interval over questions."""
        value = sum(self.right) / max(1, self.G * len(self.right))
        return Estimate(value, *wilson(value, max(1, len(self.right))))

    @property
    def live_share(self) -> float:
        """The share of groups that teach something."""
        return sum(self.live) / max(1, len(self.live))

    @property
    def in_form_share(self) -> float:
        return self.in_form / max(1, self.G * len(self.right))

    @property
    def cut_share(self) -> float:
        return self.truncated / max(1, self.G * len(self.right))


def probe(
    policy: Policy,
    tasks: TasksConfig,
    G: int,
    seconds: float,
    seed: int,
    on_progress: Callable[[int, float], None] = lambda questions, spent: None,
) -> dict[str, list[Found]]:
    """For each task what was found in each way that it can be asked in: at least one question, and more while there are
    `seconds` left, or until Ctrl-C. `on_progress` hears how many questions each has had, and how long it took. Raises
    `UserError` for tasks that cannot be made."""
    config = tasks.model_copy(update={"examples": "task", "answer": "task"})
    asked = [(spec, create_task(spec)) for spec in specs_of(tasks)]
    found: dict[str, list[Found]] = {}
    config.sources = []  # one set of tasks has them all: in another form it is another task
    for label, (spec, task) in zip(labels([task.name for _, task in asked]), asked, strict=True):
        ways = ways_for(task)
        config.sources += [way.of(spec) for way in ways]
        found[label] = [Found(way.of(spec), way, G) for way in ways]
    entries = [one for ways in found.values() for one in ways]
    made = Tasks(config)
    begun = time.monotonic()
    with Verifier(config) as verifier, suppress(KeyboardInterrupt):
        for number in range(1, MOST_QUESTIONS + 1):
            now: list[tuple[Question, Found]] = []
            for label, one in zip(made.labels, entries, strict=True):
                with suppress(QuestionFailed):
                    now.append((made.first(label, seed_of("probe", seed, number - 1, one.spec.name)), one))
            if now:
                _ask(policy, verifier, now, seed_of("probe", seed, number - 1))
            spent = time.monotonic() - begun
            on_progress(number, spent)
            if spent * (number + 1) / number > seconds:
                break
    return found


def ways_for(task: Task) -> list[Way]:
    """The ways in which a task can be asked: with examples if it knows right answers and shows no pictures, by the last
    number if all right answers are numbers. What answers back is asked as it is."""
    if isinstance(task, EnvironmentTask):
        return [WAYS[0]]
    questions = list(_some(task))
    answers = [answer for question in questions if (answer := right_answer(task, question.id))]
    numbers = bool(answers) and all(extract(answer, "last_number") == answer for answer in answers)
    examples = bool(answers) and not any(question.pictures for question in questions)
    return [way for way in WAYS if (examples or not way.examples) and (numbers or way.answer != "last_number")]


def _some(task: Task) -> Iterator[Question]:
    """Questions of a task, but for those that it fails to make."""
    for index in range(16):
        try:
            yield task.question(0, index)
        except Exception:  # code of the user, which raises anything; `Tasks` tells it
            continue


def recommend(found: Mapping[str, Sequence[Found]]) -> dict[str, Found]:
    """The best way of each task that can teach something: that with most live groups; of equal ones, with most right
    answers, then the plainest. A task that nothing can be learned from has none."""
    best = {label: max(ways, key=lambda way: (way.live_share, way.pass_at_1.value)) for label, ways in found.items()}
    return {label: one for label, one in best.items() if one.live_share}


def _ask(policy: Policy, verifier: Verifier, asked: Sequence[tuple[Question, Found]], seed: int) -> None:
    """Asks each question and notes what came. Questions that show the same chat share the answers."""
    attach_environments(policy, verifier)
    chats = {_chat(question): question for question, _ in asked}
    answers = dict(zip(chats, policy.generate(list(chats.values()), asked[0][1].G, seed), strict=True))
    groups = [answers[_chat(question)] for question, _ in asked]
    texts = [(question.id, [one.answer for one in group]) for (question, _), group in zip(asked, groups, strict=True)]
    for (_, found), group, scores in zip(asked, groups, verifier.score(texts), strict=True):
        if len(scores) == found.G:  # an endpoint may fail
            found.note(group, scores)


def _chat(question: Question) -> Hashable:
    """What is the same where answers are: the chat, or with an environment the question."""
    return (question.chat, question.pictures) if question.turns == 1 else question.id
