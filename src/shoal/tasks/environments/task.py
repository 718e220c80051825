"""An environment as a task: its first words are the question, and each conversation is held in an object of its own.

    task = EnvironmentTask(Guess, {"numbers": 16})
    question = task.question(seed=7, index=0)
    conversation = task.begin(question.id)              # a `Guess` that has said its first words
    conversation.answer("40")                           # ("higher", False)

See docs/guides/environments.md.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from shoal.protocols import Environment
from shoal.rollout import MAX_TURNS, Message, Question, QuestionId, hash_of, seed_of
from shoal.tasks.task import NoVerdict

MAX_OBSERVATION: Final = 4096
"""Characters of what an environment says at once."""


class EnvironmentFailed(NoVerdict):
    """An environment raised an error, or said what it must not: the conversation has no score."""


class EnvironmentTask:
    """Conversations with an environment."""

    def __init__(self, make: Callable[..., Environment], parameters: Mapping[str, Any]) -> None:
        """`make`: an environment's class, or a function that makes one. Raises `ValueError` or `TypeError`."""
        self._make = make
        self._parameters = dict(parameters)
        one = make(**parameters)
        if not isinstance(one, Environment):
            raise TypeError("it is not an environment: see shoal.protocols.Environment for what it must have")
        if not 2 <= one.max_turns <= MAX_TURNS:
            raise ValueError(f"max_turns must be 2 to {MAX_TURNS}, and is {one.max_turns}")
        self.name, self.version, self.max_turns = one.name, one.version, one.max_turns
        bound = inspect.signature(make).bind(**parameters)
        bound.apply_defaults()
        self.config = hash_of({"parameters": bound.arguments, "max_turns": one.max_turns})

    def question(self, seed: int, index: int) -> Question:
        identity = QuestionId(self.name, self.version, self.config, seed, index)
        conversation = self._make(**self._parameters)
        words = said(conversation.begin(self._seed(identity)))
        example = getattr(conversation, "example", ())
        shown = tuple(Message(("user", "assistant")[place % 2], text) for place, text in enumerate(example))
        return Question(identity, (Message("user", words),), shown, turns=self.max_turns)

    def begin(self, question: QuestionId) -> Environment:
        """A conversation about `question` that has begun."""
        conversation = self._make(**self._parameters)
        conversation.begin(self._seed(question))
        return conversation

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        """The scores of conversations of one turn each."""
        return [self._scored(question, (answer,)) for answer in answers]

    def blind(self, question: QuestionId) -> float | None:
        """The score of turns that do not depend on what the environment says; None if none are known."""
        blind = getattr(self.begin(question), "blind", None)
        return self._scored(question, blind()) if blind else None

    def _scored(self, question: QuestionId, turns: Sequence[str]) -> float:
        conversation = self.begin(question)
        play(conversation, turns)
        return float(conversation.score())

    def _seed(self, question: QuestionId) -> int:
        return seed_of(self.name, question.seed, question.index)


def play(conversation: Environment, turns: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """What the environment answers to `turns`, up to the one that ends the conversation; and whether one does. Raises
    `EnvironmentFailed`, and whatever the environment raises."""
    observations: list[str] = []
    for turn in turns:
        observation, ended = conversation.answer(turn)
        observations.append(said(observation))
        if ended:
            return tuple(observations), True
    return tuple(observations), False


def said(words: Any) -> str:
    """The words of an environment. Raises `EnvironmentFailed` if they are no text, or too long."""
    if not isinstance(words, str):
        raise EnvironmentFailed("environment", f"it says {type(words).__name__} in place of a text")
    if len(words) > MAX_OBSERVATION:
        raise EnvironmentFailed("observation", f"it says {len(words)} characters, of at most {MAX_OBSERVATION}")
    return words
