"""Finds out how a model is best asked, before it is trained.

    found = probe(policy, config.tasks, G=8, seconds=60, seed=0)
    best = recommend(found)                       # {"chain_sum": Found(...)}: of each task the best way to ask it

Each task is asked in each of `WAYS`, with training questions alone: held-out ones are never asked here. The figure that
counts is the share of live groups. A group whose answers are all right or all wrong teaches nothing.
"""

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

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

TAGGED: Final = "Give the final answer between <answer> and </answer>."
SHORT: Final = "Reply with the answer alone."
MOST_QUESTIONS: Final = 32
"""Of each task, in each way."""
ENOUGH: Final = 16
"""Questions after which it ends where no answer is right in any way."""


@dataclass(frozen=True)
class Way:
    """A way of asking and answering."""

    name: str
    says: str
    """The same for people."""
    answer: str
    examples: int = 0
    system_prompt: str = ""

    @property
    def chat(self) -> tuple[int, str]:
        """What is the same where the model reads the same."""
        return self.examples, self.system_prompt

    def of(self, spec: TaskSpec) -> TaskSpec:
        """`spec`, asked in this way."""
        update = {"answer": self.answer, "examples": self.examples, "system_prompt": self.system_prompt}
        return spec.model_copy(update=update)


WAYS: Final = (
    Way("plain", "the question alone", "whole"),
    Way("last-number", "the question alone, and the last number counts", "last_number"),
    Way("short", f"with {SHORT!r} before it", "whole", system_prompt=SHORT),
    Way("tags", "with a request for tags", "tag", system_prompt=TAGGED),
    Way("examples", "with 3 worked examples", "whole", examples=3),
    Way("examples-last-number", "with 3 worked examples, and the last number counts", "last_number", examples=3),
    Way("examples-tags", "with 3 worked examples in tags", "tag", examples=3),
)
GIVEN: Final = "as given"


def given_way(spec: TaskSpec) -> Way:
    """The way that `spec` has itself."""
    return Way(GIVEN, "as the settings say", spec.answer, spec.examples, spec.system_prompt)


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
    def answers(self) -> int:
        return self.G * len(self.right)

    @property
    def pass_at_1(self) -> Estimate:
        """The share of right answers, with Wilson's interval over questions."""
        value = sum(self.right) / max(1, self.answers)
        return Estimate(value, *wilson(value, max(1, len(self.right))))

    @property
    def live_share(self) -> float:
        """The share of groups that teach something."""
        return sum(self.live) / max(1, len(self.live))

    @property
    def live_interval(self) -> tuple[float, float]:
        """Wilson's interval of that share."""
        return wilson(self.live_share, max(1, len(self.live)))

    @property
    def in_form_share(self) -> float:
        return self.in_form / max(1, self.answers)

    @property
    def cut_share(self) -> float:
        return self.truncated / max(1, self.answers)


def probe(
    policy: Policy,
    tasks: TasksConfig,
    G: int,
    seconds: float,
    seed: int,
    on_progress: Callable[[int, float], None] = lambda questions, spent: None,
    keeps: bool = True,
    as_given: bool = False,
) -> dict[str, list[Found]]:
    """For each task what was found in each way that it can be asked in: at least one way, and more questions while
    there are `seconds` left and it is open which way is best. A way without a right answer is given up where another
    has several. Ctrl-C ends it with what is known if it `keeps` that. `on_progress` hears how many questions the best
    ways have had, and how long it took. `as_given`: in the tasks' own ways alone. Raises `UserError` for tasks that
    cannot be made."""
    asked = [(spec, create_task(spec)) for spec in specs_of(tasks)]
    found: dict[str, list[Found]] = {}
    made: list[tuple[Tasks, Found]] = []
    for label, (spec, task) in zip(labels([task.name for _, task in asked]), asked, strict=True):
        found[label] = [Found(way.of(spec), way, G) for way in ([given_way(spec)] if as_given else ways_for(task))]
        made += [(Tasks(_only(tasks, [one.spec])), one) for one in found[label]]
    forms = {str((one.spec.name, one.spec.parameters, one.spec.form)): one.spec for _, one in made}
    whole, begun = Tasks(tasks), time.monotonic()
    with Verifier(_only(tasks, list(forms.values()))) as verifier, suppress(*[KeyboardInterrupt] * keeps):
        for number in range(1, MOST_QUESTIONS + 1):
            seed_now = seed_of("probe", seed, number - 1)
            now: list[tuple[Question, Found]] = []
            for one_task, one in made:
                with suppress(QuestionFailed):
                    question = one_task.first(one_task.labels[0], seed_of(str(seed_now), one.spec.name))
                    if not whole.is_held_out(question):  # another data set's split may hold it out
                        now.append((question, one))
            chats: dict[Hashable, list[tuple[Question, Found]]] = {}
            for pair in now:  # one by one at first, which shows how long it takes
                chats.setdefault(_chat(pair[0]) if number == 1 else None, []).append(pair)
            for part in chats.values():
                _ask(policy, verifier, part, seed_now)
                if number == 1 and time.monotonic() - begun > seconds:
                    break
            done = [one for ways in found.values() for one in lost(ways)]
            made = [(tasks, one) for tasks, one in made if one not in done]
            spent = time.monotonic() - begun
            on_progress(number, spent)
            if spent * (number + 1) / number > seconds or all(map(_settled, found.values())):
                break
    return {label: [one for one in ways if one.right] or ways[:1] for label, ways in found.items()}


def _only(tasks: TasksConfig, specs: list[TaskSpec]) -> TasksConfig:
    """Settings with these tasks alone, each in its own form."""
    return tasks.model_copy(update={"examples": "task", "answer": "task", "sources": specs})


def _settled(ways: Sequence[Found]) -> bool:
    """Whether more questions to a task would hardly change what is found."""
    best = max(ways, key=worth)
    if len(best.right) >= ENOUGH and not any(map(sum, (one.right for one in ways))):
        return True
    others = [one for one in ways if one.way.chat != best.way.chat and one.right]
    return len(best.right) >= 4 and all(best.live_interval[0] > one.live_interval[1] for one in others)


def lost(ways: Sequence[Found]) -> list[Found]:
    """The ways of a task that are not asked any more: without a right answer, where another has several, or where most
    answers ran into the longest length and others do not."""
    several = max(sum(map(bool, one.right)) for one in ways) > 1
    short = any(one.right and one.cut_share < 0.5 for one in ways)
    none = (one for one in ways if len(one.right) > 1 and not any(one.right))
    return [one for one in none if several or (short and one.cut_share > 0.5)]


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
    best = {label: max(ways, key=worth) for label, ways in found.items()}
    return {label: one for label, one in best.items() if one.live_share}


def worth(one: Found) -> tuple[float, float, bool]:
    """What ways are compared by: where nothing is right, most answers shall come to their end."""
    return one.live_share, one.pass_at_1.value, one.cut_share < 0.5


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
