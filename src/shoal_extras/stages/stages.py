"""The stages of one node: draws their questions, makes those of others again, and says what their answers count as.

    stages = Stages(["critique", "decide"], "ada")
    stages.remember(rollout, scored)                # each rollout that the node made or admitted
    question = stages.draw(slot=1, key=("lagoon", "c0ffee", 7))
    base, answers = stages.settle(question.id, ["B, since 2 + 2 is 4"])

With two stages a third of the slots is for each, and a third for questions that quote nothing. What a question quotes
is its maker's choice, and nothing else: slot and round say the stage. Nobody asks a stage about the same answers twice.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from shoal.errors import UserError
from shoal.protocols import Draws, TaskSource
from shoal.rollout import Answer, Message, Question, QuestionId, Rollout, Scored, hash_of
from shoal.tasks.draw import UnknownQuestion, UnknownQuote, slot_seed
from shoal_extras.programs.propose import PROPOSE
from shoal_extras.stages.kinds import KINDS, SHOWN, Archive, Quotable, Solve, Stage

FILE: Final = "stages.msgpack"
ASKED, HELD = 8192, 256
"""Questions that are remembered, so that nobody asks them twice; rollouts that own questions quote."""


class Stages:
    """The stages of a node, with what they may quote. Threads may share it."""

    def __init__(self, names: Sequence[str], node: str) -> None:
        """`names`: of `KINDS`, each after the one that it follows. `node`: whose stages these are."""
        self.names = list(names)
        self.node = node
        self.config = hash_of(self.names)
        self.archive = Archive()
        self._asked: OrderedDict[str, None] = OrderedDict()
        self._held: OrderedDict[str, Quotable] = OrderedDict()
        """What own questions quote: it stays until they are answered, whatever the archive gives up."""
        self._lock = threading.RLock()

    def check_tasks(self, names: Sequence[str]) -> None:
        """Raises `UserError` if a stage needs a task that is not among `names`."""
        if Solve.name in self.names and PROPOSE not in names:
            raise UserError("the stage solve is about problems that peers set: add the task propose")

    def with_tasks(self, tasks: TaskSource) -> StagedTasks:
        """`tasks`, whose questions may be of a stage."""
        return StagedTasks(tasks, self)

    def with_draws(self, source: TaskSource | Draws) -> StagedDraws:
        """Draws of tasks, or of their levels, and of these stages."""
        return StagedDraws(source, self)

    def remember(self, rollout: Rollout, scored: Scored) -> None:
        """Keeps a rollout for later questions. `rollout`: as its maker signed it; `scored`: as this node has it, all of
        it."""
        question, said = scored.question, [completion.text for completion in rollout.completions]
        texts, maker = differing(said), (rollout.hash, rollout.node)
        with self._lock:
            if not question.id.quotes:
                if question.turns == 1:
                    full = {text for text, reward in zip(said, scored.rewards, strict=False) if reward >= 1}
                    right = tuple(text in full for text in texts)
                    self.archive.add(Quotable(*maker, "", question, texts, live=scored.live, right=right))
            elif before := self._get(question.id.quotes[0]):  # else newer ones have taken its place just now
                self.note(rollout.node, question.id)
                stage = question.id.task
                self.archive.add(Quotable(*maker, stage, before.question, before.answers, texts, live=scored.live))

    def has_asked(self, maker: str, id: QuestionId) -> bool:
        """Whether `maker` has asked this stage about the same answers, as far as is known. Raises as `question`."""
        asked = _about(maker, id.task, self._quoted(id)[0])
        with self._lock:
            return asked in self._asked

    def note(self, maker: str, id: QuestionId) -> None:
        """`maker` has asked this stage about these answers."""
        if (quoted := self._get(id.quotes[0])) is None:
            return
        with self._lock:
            self._asked[_about(maker, id.task, quoted)] = None
            if len(self._asked) > ASKED:
                self._asked.popitem(last=False)

    def draw(self, slot: int, key: tuple[str | int, ...]) -> Question | None:
        """The question of the stage that is for `slot`, which is then asked. None: the slot is for none, or there is
        nothing to quote. Only live rollouts are quoted, and those of each node as often."""
        if (place := self._place(slot, key)) is None:
            return None
        stage, seed = KINDS[self.names[place]], slot_seed(key, slot, self.names[place])
        random = Random(seed)
        about: dict[tuple[QuestionId, tuple[str, ...]], list[Quotable]] = {}
        with self._lock:
            earlier, asked = self.archive.of(self._before(stage)), set(self._asked)
        for one in earlier:
            if stage.indices(one):
                about.setdefault((one.question.id, one.answers), []).append(one)
        by_node: dict[str, list[list[Quotable]]] = {}
        for alike in about.values():
            if _about(self.node, stage.name, alike[0]) not in asked:
                by_node.setdefault(random.choice(alike).node, []).append(alike)
        while by_node:
            groups = by_node[node := random.choice(sorted(by_node))]
            alike = groups.pop(random.randrange(len(groups)))
            if not groups:
                del by_node[node]
            quoted = sorted(random.sample(alike, min(len(alike), stage.most)), key=lambda one: one.hash)
            index, hashes = random.choice(stage.indices(quoted[0])), tuple(one.hash for one in quoted)
            if stage.ask(quoted, index) is not None:
                self._hold(quoted)
                question = self.question(QuestionId(stage.name, stage.version, self.config, seed, index, hashes))
                self.note(self.node, question.id)
                return question
        return None

    def question(self, id: QuestionId) -> Question:
        """The question with this id, made again. Raises `UnknownQuote` if it quotes what this node does not have, and
        `UnknownQuestion` if it is none of these stages'."""
        quoted = self._quoted(id)
        told = self._stage(id).ask(quoted, id.index)
        if told is None:
            raise UnknownQuestion(f"there is nothing to ask about these: {id}")
        first = quoted[0].question
        systems = (message for message in first.prompt if message.role == "system")
        return Question(id, (*systems, Message("user", told)), first.examples, first.pictures)

    def is_drawn(self, id: QuestionId, slot: int, *key: str | int) -> bool:
        """Whether the draw with `key` may give this question in `slot`. Raises as `question`."""
        stage, place = self._stage(id), self._place(slot, key)
        here = place is not None and self.names[place] == stage.name
        return here and id.seed == slot_seed(key, slot, stage.name)

    def settle(self, id: QuestionId, answers: Sequence[str]) -> tuple[QuestionId, tuple[Answer, ...]]:
        """What is scored in place of `answers`, and as answers to which question. Raises as `question`."""
        stage, quoted = self._stage(id), self._quoted(id)
        return quoted[0].question.id, tuple(stage.settle(quoted, id.index, answer) for answer in answers)

    def save(self, folder: Path) -> None:
        with self._lock:
            state = list(self.archive.kept.values()), list(self._asked)
        (folder / FILE).write_bytes(msgspec.msgpack.encode(state))

    def load(self, folder: Path) -> None:
        kept, asked = msgspec.msgpack.decode((folder / FILE).read_bytes(), type=tuple[list[Quotable], list[str]])
        with self._lock:
            self.archive.kept = {one.hash: one for one in kept}
            self._asked = OrderedDict.fromkeys(asked)

    def _place(self, slot: int, key: tuple[str | int, ...]) -> int | None:
        """The number of the stage that is for `slot`. The last of `key` is the round."""
        turn = (slot + int(key[-1])) % (len(self.names) + 1)
        return turn - 1 if turn else None

    def _get(self, hash: str) -> Quotable | None:
        with self._lock:
            return self._held.get(hash) or self.archive.get(hash)

    def _hold(self, quoted: Sequence[Quotable]) -> None:
        with self._lock:
            self._held |= {one.hash: one for one in quoted}
            while len(self._held) > HELD:
                self._held.popitem(last=False)

    def _before(self, stage: Stage) -> str:
        """The stage that `stage` quotes; empty for answers to questions that quote nothing."""
        return stage.after if stage.after in self.names else ""

    def _stage(self, id: QuestionId) -> Stage:
        stage = KINDS.get(id.task)
        if stage is None or id.task not in self.names or (id.version, id.config) != (stage.version, self.config):
            raise UnknownQuestion(f"not one of these stages: {id}")
        return stage

    def _quoted(self, id: QuestionId) -> list[Quotable]:
        stage = self._stage(id)
        found = [one for hash in id.quotes if (one := self._get(hash)) is not None]
        if not id.quotes or len(found) < len(id.quotes):
            raise UnknownQuote(f"it quotes what is not here: {id}")
        in_order = list(id.quotes) == sorted(set(id.quotes))
        if not in_order or len(found) > stage.most or any(one.stage != self._before(stage) for one in found):
            raise UnknownQuestion(f"it quotes another stage, too much, or in another order: {id}")
        return found


def differing(texts: Sequence[str]) -> tuple[str, ...]:
    """The first of `texts` that differ by more than white space. (Not `canonical`: composing Unicode takes quadratic
    time, and a stranger wrote them.)"""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(" ".join(text.split()), text)
    return tuple(found.values())[:SHOWN]


class StagedTasks:
    """Tasks whose questions may be of a stage."""

    def __init__(self, tasks: TaskSource, stages: Stages) -> None:
        self.tasks = tasks
        self.stages = stages

    def draw(self, n: int, *key: str | int) -> list[Question]:
        return staged(self.tasks.draw(n, *key), self.stages, key)

    def question(self, id: QuestionId) -> Question:
        return self._of(id).question(id)

    def is_drawn(self, id: QuestionId, slot: int, *key: str | int) -> bool:
        return self._of(id).is_drawn(id, slot, *key)

    def is_held_out(self, question: Question) -> bool:
        """What is quoted answers a question that is not held out: another is never admitted."""
        return not question.id.quotes and self.tasks.is_held_out(question)

    def _of(self, id: QuestionId) -> Stages | TaskSource:
        return self.stages if id.quotes else self.tasks


class StagedDraws:
    """Draws of tasks, or of their levels, and of stages."""

    def __init__(self, source: TaskSource | Draws, stages: Stages) -> None:
        self.source = source
        self.stages = stages
        self._levels = source if isinstance(source, Draws) else None

    def draw(self, n: int, *key: str | int) -> list[Question]:
        return staged(self.source.draw(n, *key), self.stages, key)

    def observe(self, local: Sequence[Scored]) -> None:
        if self._levels:
            self._levels.observe(local)

    def mean_levels(self, local: Sequence[Scored]) -> dict[str, float | None]:
        return self._levels.mean_levels(local) if self._levels else {}

    def save(self, folder: Path) -> None:
        self.stages.save(folder)
        if self._levels:
            self._levels.save(folder)

    def load(self, folder: Path) -> None:
        self.stages.load(folder)
        if self._levels:
            self._levels.load(folder)


def staged(questions: Sequence[Question], stages: Stages, key: tuple[str | int, ...]) -> list[Question]:
    """`questions`, one for each slot, with those of stages in their places."""
    return [stages.draw(slot, key) or question for slot, question in enumerate(questions)]


def _about(maker: str, stage: str, quoted: Quotable) -> str:
    """What names a question of a stage: who asks it, and about which answers."""
    return hash_of((maker, stage, quoted.question.id, quoted.answers))
