"""Draws a node's questions, makes questions again from their ids, and holds some out for evaluation.

    tasks = Tasks(TasksConfig(suite="pond"))
    questions = tasks.draw(4, "node key", 17)       # the same four whenever it is called so
    tasks.held_out(per_task=16, seed=0)             # never among those that `draw` gives
    question = validate(tasks, rollout.question, rollout.question_hash, len(rollout.completions))

A draw has no state: a node that resumes asks what it would have asked. Nobody's word is taken for a question: it is
made again from its id, and own and peers' rollouts are checked alike.
"""

import contextlib
import functools
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

from shoal.config.answer_form import extract, is_pattern
from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError, in_brief
from shoal.protocols import TaskSource
from shoal.rollout import Message, Question, QuestionId, hash_of, seed_of
from shoal.tasks.create import create_task, worked_examples
from shoal.tasks.data.task import DataTask
from shoal.tasks.environments.task import EnvironmentTask
from shoal.tasks.suites import specs_of
from shoal.tasks.task import MAX_INDEX, Failed, Task, Trouble, right_answer
from shoal.untrusted import printable

HELD_OUT = 0.2
"""The share of all questions, by a hash of their content, that is never trained on. All nodes hold out the same."""

SAME, TRIED = 4, 32
"""Conversations with an environment that are begun to find out whether its first words are always the same, and at most
to find some on both sides: of many words one time in a thousand none would be held out."""

READ = 100
"""Characters of what was read in a completion."""

FAILURES = 64
"""The first questions of a task: if all of them fail, its error is raised."""


class UnknownQuestion(ValueError):  # noqa: N818 (it is a fact about a question, not a fault)
    """A question id that these tasks cannot have made: another task, version or parameters, or out of range."""


class QuestionFailed(UserError):  # noqa: N818 (it is a fact about a question)
    """A task raised an error where it had to make a question."""


def _is_on_held_out_side(text: str) -> bool:
    return int(hash_of(("side", text))[:16], 16) / 2**64 < HELD_OUT


def slot_seed(key: tuple[str | int, ...], slot: int, task: str) -> int:
    """The seed of the question in `slot` of the draw with `key`: a hash, so that no two draws overlap."""
    return seed_of(*key, slot, task)


@dataclass(frozen=True)
class _Source:
    """One of the tasks, as it is asked."""

    task: Task
    spec: TaskSpec
    config: str
    examples: tuple[Message, ...]


class Tasks:
    """The tasks of a run, with weights. Raises `UserError` if a task cannot be made or if two are the same."""

    def __init__(self, config: TasksConfig) -> None:
        self.config = config
        self._trouble = Trouble("questions could not be made")
        self.specs = specs_of(config)
        """How each task is asked."""
        self.tasks = list(map(create_task, self.specs))
        # The last part is the hash of all that makes a question and its score: parameters, examples, form of answers.
        identities = [
            (task.name, task.version, hash_of([task.config, spec.form]) if spec.form else task.config)
            for task, spec in zip(self.tasks, self.specs, strict=True)
        ]
        if twice := [identity for identity, count in Counter(identities).items() if count > 1]:
            raise UserError(f"task {twice[0][0]!r} is listed twice with the same parameters; give it more weight")
        self._splits: dict[tuple[str, str], Any] = {
            (task.name, task.version): task for task in self.tasks if getattr(task, "has_split", False)
        }
        """The tasks that say themselves what is held out."""
        self._alike: set[tuple[str, str, str]] = set()
        """Environments whose first words would hold out nothing, or everything: with these parameters few differ."""
        self._sources: dict[tuple[str, str, str], _Source] = {
            identity: _Source(task, spec, identity[2], worked_examples(task, spec, self.is_held_out))
            for identity, task, spec in zip(identities, self.tasks, self.specs, strict=True)
        }
        self.labels = labels([task.name for task in self.tasks])
        """A name for each task, unique even where two differ by parameters alone."""
        self.weights = [spec.weight for spec in self.specs]
        """How often each task is drawn, relative to the others."""
        self._labelled = dict(zip(self.labels, self._sources.values(), strict=True))
        # Nodes regenerate each other's questions. Bound to the instance, not the class.
        self._cached = functools.lru_cache(maxsize=4096)(self._make)
        self._alike |= {identity for identity, source in self._sources.items() if self._begins_alike(source)}

    def draw(self, n: int, *key: str | int) -> list[Question]:
        """`n` training questions. One that its task fails to make has no prompt, and is counted in `trouble`. Raises
        `UserError` if a task has none within reach."""
        self._trouble.count(n)
        return [self._draw(slot, key) for slot in range(n)]

    @property
    def trouble(self) -> str:
        """The first error in making a question that was drawn, and how many there were; empty if there was none."""
        return str(self._trouble)

    def held_out(self, per_task: int, seed: int) -> dict[str, list[Question]]:
        """`per_task` held-out questions of each task (by label) that differ; fewer if the task has fewer. None of a
        task that cannot be verified. Conversations differ by more than their first words. Raises `UserError` for a task
        that fails to make any question."""
        found: dict[str, list[Question]] = {}
        for label, source in self._labelled.items():
            texts: dict[str, Question] = {}
            failed = 0
            scan = max(1000, 50 * per_task) if getattr(source.task, "has_answers", True) else 0
            for number in range(scan):
                if len(texts) == per_task:
                    break
                group = seed_of("held out", seed, source.task.name, number // MAX_INDEX)
                try:
                    question = self._question(source, group, number % MAX_INDEX)
                except QuestionFailed:
                    failed += 1
                    if failed == number + 1 == FAILURES:
                        raise
                    continue
                if self.is_held_out(question):
                    texts.setdefault(question.content if question.turns == 1 else str(question.id), question)
            found[label] = list(texts.values())
        return found

    def question(self, identity: QuestionId) -> Question:
        """The question of that id, made again. Raises `UnknownQuestion` if it is none of these tasks'."""
        self.lookup(identity)
        if not 0 <= identity.index <= MAX_INDEX or not 0 <= identity.seed < 2**63:
            raise UnknownQuestion(f"seed {identity.seed} or index {identity.index} is out of range")
        return self._cached(identity)

    def first(self, label: str, seed: int) -> Question:
        """The first training question of the task with this label under `seed`. Raises as `draw`."""
        return self._first(self._labelled[label], seed)

    def asking(self) -> tuple[Message, ...]:
        """What the first task says before each question: its system text and worked examples."""
        try:
            return self.first(self.labels[0], 0).asking
        except QuestionFailed:
            return self._labelled[self.labels[0]].examples

    def made(self, label: str, seed: int, index: int) -> Question:
        """Question `index` under `seed` of the task with this label, training or held out."""
        return self._question(self._labelled[label], seed, index)

    @property
    def identities(self) -> list[tuple[str, str, str]]:
        """Name, version and parameters' hash of each task, as in the ids of its questions."""
        return list(self._sources)

    def label_of(self, identity: QuestionId) -> str | None:
        """The label of the task that made a question; None if it is none of these."""
        source = self._sources.get((identity.task, identity.version, identity.config))
        return next((label for label, one in self._labelled.items() if one is source), None)

    def lookup(self, identity: QuestionId) -> tuple[Task, TaskSpec]:
        """The task that made a question, with its specification. Raises `UnknownQuestion` if it is none of these."""
        source = self._source(identity)
        return source.task, source.spec

    def answer(self, identity: QuestionId) -> str | None:
        """A right answer to a question of these tasks; None where its task names none."""
        task, _ = self.lookup(identity)
        return right_answer(task, identity)

    def reading(self, identity: QuestionId, text: str) -> str | None:
        """What is taken for the answer in a completion, for people: "14 as number", or "no number". None where the
        task reads all of it, or a pattern finds it."""
        task, spec = self.lookup(identity)
        if is_pattern(spec.answer):
            return None
        said = extract(text, spec.answer) or ""
        own = task.read(identity, said) if isinstance(task, DataTask) else None
        value, kind = own or (said, spec.answer)
        if not own and kind == "whole":
            return None
        return f"{printable(value, READ)} as {kind}" if value else f"no {kind}"

    def refuse_environments(self, who: str) -> None:
        """Raises `UserError` if a task answers back, which `who` cannot do."""
        for label, source in self._labelled.items():
            if isinstance(source.task, EnvironmentTask):
                raise UserError(f"task {label!r} answers back, which {who} cannot do yet: take other tasks")

    def is_held_out(self, question: Question) -> bool:
        """Whether the question is kept for evaluation. Its content alone decides, so that all nodes and tasks agree:
        what one data set's own split holds out, all tasks do. That set has no other held-out questions. Where an
        environment's first words put all conversations on one side, its seed and index decide."""
        if any(split.holds_out(question.text) for split in self._splits.values()):
            return True
        if (question.id.task, question.id.version) in self._splits:
            return False
        return _is_on_held_out_side(self._text(question))

    def is_drawn(self, identity: QuestionId, slot: int, *key: str | int) -> bool:
        """Whether the draw with `key` gives this question in `slot`: it must be the first training question there.

        Raises `UnknownQuestion` if it is none of these tasks'.
        """
        source = self._source(identity)
        before = (self._question(source, identity.seed, index) for index in range(min(identity.index, MAX_INDEX)))
        return (
            0 <= identity.index < MAX_INDEX
            and identity.seed == slot_seed(key, slot, identity.task)
            and all(self.is_held_out(question) for question in before)
        )

    def _draw(self, slot: int, key: tuple[str | int, ...]) -> Question:
        source = Random(seed_of(*key, slot)).choices(list(self._sources.values()), self.weights)[0]
        seed = slot_seed(key, slot, source.task.name)
        try:
            return self._first(source, seed)
        except QuestionFailed as error:
            self._trouble.add(*str(error).split(": ", 1))
            return Question(QuestionId(source.task.name, source.task.version, source.config, seed, 0), ())

    def _first(self, source: _Source, seed: int) -> Question:
        for index in range(MAX_INDEX):
            question = self._question(source, seed, index)
            if not self.is_held_out(question):
                return question
        raise UserError(f"task {source.task.name!r} has no training question in {MAX_INDEX} tries: too few differ")

    def _source(self, identity: QuestionId) -> _Source:
        try:
            return self._sources[identity.task, identity.version, identity.config]
        except KeyError:
            raise UnknownQuestion(f"not one of these tasks: {identity}") from None

    def _question(self, source: _Source, seed: int, index: int) -> Question:
        return self._cached(QuestionId(source.task.name, source.task.version, source.config, seed, index))

    def _text(self, question: Question) -> str:
        """What tells a question from others: its content, if that differs."""
        identity, text = question.id, question.content
        alike = (identity.task, identity.version, identity.config) in self._alike
        return f"{text} {identity.seed} {identity.index}" if alike else text

    def _begins_alike(self, source: _Source) -> bool:
        """Whether an environment's first words put all conversations on one side. Where the first four are the same, no
        more are begun: seeds decide well between few words, too."""
        if not isinstance(source.task, EnvironmentTask):
            return False
        found: set[str] = set()
        for number in range(TRIED):
            with contextlib.suppress(QuestionFailed):  # whoever draws it hears of it
                found.add(self._question(source, seed_of("words", number), 0).content)
            if len({_is_on_held_out_side(text) for text in found}) == 2:
                return False
            if number == SAME - 1 and len(found) == 1:
                break
        return True

    def _make(self, identity: QuestionId) -> Question:
        source = self._source(identity)
        try:
            made = source.task.question(identity.seed, identity.index)
            if not isinstance(made, Question):
                raise TypeError(f"it gives no shoal.Question, but {type(made).__name__}")
        except UserError:
            raise
        except Exception as error:  # own code raises whatever it does
            why = error.detail if isinstance(error, Failed) and error.detail else in_brief(error)
            raise QuestionFailed(f"task {source.task.name!r}: {why}") from error
        return self._asked(source, identity, made)

    def _asked(self, source: _Source, identity: QuestionId, made: Question) -> Question:
        """A task's question as the settings ask it."""
        prompt = made.prompt
        if source.spec.system_prompt:  # in place of the question's own
            own = (message for message in prompt if message.role != "system")
            prompt = (Message("system", source.spec.system_prompt), *own)
        return Question(identity, prompt, source.examples or made.examples, made.pictures, made.turns)


def labels(names: list[str]) -> list[str]:
    """`names`, numbered where they repeat: a, b#1, b#2."""
    total, seen = Counter(names), Counter[str]()
    labels = []
    for name in names:
        seen[name] += 1
        labels.append(name if total[name] == 1 else f"{name}#{seen[name]}")
    return labels


DrawKey = tuple[str | int, ...]
"""(swarm, public key in hex, round): what a node's questions are drawn with, see `TaskSource.is_drawn`."""


class InvalidRollout(ValueError):  # noqa: N818 (it is a fact about a rollout, not a fault)
    """A rollout that is refused. `reason` is one of "completions", "task", "seed", "question" and "held out"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def validate(
    tasks: TaskSource,
    id: QuestionId,
    question_hash: str | None,
    completions: int,
    drawn: tuple[DrawKey, int] | None = None,
) -> Question:
    """The question with `id`, made again. Raises `InvalidRollout` with the first thing that is wrong:

    - completions: there are none.
    - task: the id is not one of `tasks`', or its question cannot be made.
    - seed: the draw with this key does not give this question in this slot. Checked if `drawn` = (key, slot) is given.
    - question: the question made here has another hash than `question_hash`. None: not checked.
    - held out: the question is kept for evaluation.
    """
    if not completions:
        raise InvalidRollout("completions")
    try:
        if drawn is not None:
            key, slot = drawn
            if not tasks.is_drawn(id, slot, *key):
                raise InvalidRollout("seed")
        question = tasks.question(id)
    except InvalidRollout:
        raise
    except Exception:  # unknown tasks and numbers; and a generator may raise anything for what nobody draws
        raise InvalidRollout("task") from None
    if question_hash is not None and question_hash != question.hash:
        raise InvalidRollout("question")
    if tasks.is_held_out(question):
        raise InvalidRollout("held out")
    return question
