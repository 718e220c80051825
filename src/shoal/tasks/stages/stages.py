"""The stages of one node: draws their questions, makes those of others again, and says what their answers count as.

    stages = Stages(["critique", "decide"], "ada")
    stages.remember(rollout, scored)                # each rollout that the node made or admitted
    question = stages.draw(slot=1, key=("reef", "c0ffee", 7))
    base, answers = stages.settle(question.id, ["B, since 2 + 2 is 4"])

With two stages a third of the slots is for each, and a third for questions that quote nothing. What a question quotes
is its maker's choice, and nothing else: the slot says the stage. Nobody asks the same about the same twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from shoal.rollout import Answer, Message, Question, QuestionId, Rollout, Scored, canonical, hash_of, text_of
from shoal.tasks.draw import UnknownQuestion, slot_seed
from shoal.tasks.stages.archive import Archive, Quotable
from shoal.tasks.stages.kinds import KINDS, SHOWN, Stage


class UnknownQuote(UnknownQuestion):
    """A question quotes what this node does not have."""


class Stages:
    """The stages of a node, with what they may quote. Threads may share it."""

    def __init__(self, names: Sequence[str], node: str) -> None:
        """`names`: of `KINDS`, each after the one that it follows. `node`: whose stages these are."""
        self.names = list(names)
        self.node = node
        self.config = hash_of(self.names)
        self.archive = Archive()

    def remember(self, rollout: Rollout, scored: Scored) -> None:
        """Keeps a rollout for later questions. `rollout`: as its maker signed it; `scored`: as this node has it."""
        question, said = scored.question, [text_of(each.answer) for each in rollout.completions]
        texts, maker = differing(said), (rollout.hash, rollout.node)
        if not question.id.quotes:
            if question.turns == 1:
                full = {text for text, reward in zip(said, scored.rewards, strict=False) if reward >= 1}
                right = tuple(text in full for text in texts)
                self.archive.add(Quotable(*maker, "", question, texts, live=scored.live, right=right))
            return
        before = self.archive.get(question.id.quotes[0])
        if before is not None:  # else newer ones have taken its place just now
            quotes, stage = question.id.quotes, question.id.task
            self.archive.add(Quotable(*maker, stage, before.question, before.answers, texts, quotes, scored.live))

    def draw(self, slot: int, key: tuple[str | int, ...]) -> Question | None:
        """The question of the stage that is for `slot`. None: the slot is for none, or there is nothing to quote. Only
        live rollouts are quoted, and those of each node as often."""
        if (place := self._place(slot)) is None:
            return None
        stage, seed = KINDS[self.names[place]], slot_seed(key, slot, self.names[place])
        random = Random(seed)
        about: dict[tuple[QuestionId, tuple[str, ...]], list[Quotable]] = {}
        for one in self.archive.of(self._before(stage)):
            if stage.indices(one):
                about.setdefault((one.question.id, one.answers), []).append(one)
        choices: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
        for alike in about.values():
            quoted = random.sample(alike, min(len(alike), stage.most))
            index, hashes = random.choice(stage.indices(quoted[0])), tuple(one.hash for one in quoted)
            if stage.ask(quoted, index) is not None and not self.archive.has_asked(self.node, stage.name, hashes):
                choices.setdefault(quoted[0].node, []).append((index, hashes))
        if not choices:
            return None
        index, quotes = random.choice(choices[random.choice(sorted(choices))])
        return self.question(QuestionId(stage.name, stage.version, self.config, seed, index, quotes))

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
        stage, place = self._stage(id), self._place(slot)
        here = place is not None and self.names[place] == stage.name
        return here and id.seed == slot_seed(key, slot, stage.name)

    def settle(self, id: QuestionId, answers: Sequence[Answer]) -> tuple[QuestionId, tuple[Answer, ...]]:
        """What is scored in place of `answers`, and as answers to which question. Raises as `question`."""
        stage, quoted = self._stage(id), self._quoted(id)
        return quoted[0].question.id, tuple(stage.settle(quoted, id.index, text_of(answer)) for answer in answers)

    def save(self, folder: Path) -> None:
        self.archive.save(folder)

    def load(self, folder: Path) -> None:
        self.archive.load(folder)

    def _place(self, slot: int) -> int | None:
        """The number of the stage that is for `slot`."""
        turn = slot % (len(self.names) + 1)
        return turn - 1 if turn else None

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
        found = [one for hash in id.quotes if (one := self.archive.get(hash)) is not None]
        if not id.quotes or len(found) < len(id.quotes):
            raise UnknownQuote(f"it quotes what is not here: {id}")
        if len(found) > stage.most or any(one.stage != self._before(stage) for one in found):
            raise UnknownQuestion(f"it quotes another stage, or too much: {id}")
        return found


def differing(texts: Sequence[str]) -> tuple[str, ...]:
    """The first of `texts` that differ by more than white space."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(canonical(text), text)
    return tuple(found.values())[:SHOWN]
