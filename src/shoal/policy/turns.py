"""Turns of conversations with environments: the tokens between them, and what the environment answers."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from shoal.policy.plain import PlainText
from shoal.policy.template import ChatFrame, Slot
from shoal.rollout import Question
from shoal.sandbox.replay import Replayer

KNOWN: Final = 1024
"""Observations whose tokens are remembered: they are read twice, and many are alike."""
OBSERVED: Final = 256
"""Tokens for which there is room after each turn. A conversation of longer observations may be cut short."""


class Between:
    """The tokens between two turns of the policy: the environment's words, as the chat template says a user's."""

    def __init__(self, plain: PlainText, frame: ChatFrame, stop_ids: frozenset[int]) -> None:
        """`frame`: what follows the policy's turn, with one slot."""
        self._plain, self._frame, self._stop_ids = plain, frame, stop_ids
        self._known = lru_cache(KNOWN)(self._read)

    def ids(self, observation: str) -> list[int]:
        """The tokens, at least one. That which ends the policy's turn is there already."""
        return list(self._known(observation))

    def _read(self, observation: str) -> tuple[int, ...]:
        ids = self._plain.framed(self._frame, [observation])
        return tuple(ids[1:] if len(ids) > 1 and ids[0] in self._stop_ids else ids)


def after_answer(frame: ChatFrame) -> ChatFrame:
    """What follows message 1 in the frame of a user, an assistant and a user."""
    [place] = [n for n, piece in enumerate(frame.pieces) if isinstance(piece, Slot) and piece.number == 1]
    rest = frame.pieces[place + 1 :]
    return ChatFrame(tuple(Slot(0, p.left, p.right) if isinstance(p, Slot) else p for p in rest))


def by_turn(ids: Sequence[int], stop_ids: frozenset[int]) -> list[list[int]]:
    """The policy's tokens, turn by turn: each but the last ends with a stop token."""
    turns: list[list[int]] = [[]]
    for id in ids:
        if turns[-1] and turns[-1][-1] in stop_ids:
            turns.append([])
        turns[-1].append(id)
    return turns


class Observer:
    """What the environment answers in the conversations about `questions`."""

    def __init__(
        self,
        questions: Sequence[Question],
        replayer: Replayer,
        read: Callable[[Sequence[int]], tuple[str, ...]],
        between: Between,
    ) -> None:
        """`read`: the texts of the turns in tokens."""
        self.observations: dict[tuple[int, int], list[str]] = defaultdict(list)
        """By the number of the question and that of the completion."""
        self._questions, self._replayer, self._read, self._between = questions, replayer, read, between

    def answer(self, ended: Sequence[tuple[int, int, Sequence[int]]]) -> list[list[int]]:
        """See `Dialogue.answer`. A conversation whose environment fails is over: it is refused when it is scored."""
        questions = [self._questions[number] for number, _, _ in ended]
        turns = [self._read(ids) for _, _, ids in ended]
        asked = [place for place, question in enumerate(questions) if question.turns > 1]
        played = self._replayer.replay([(questions[p].id, turns[p]) for p in asked], scored=False) if asked else []
        found: list[list[int]] = [[] for _ in ended]
        for place, result in zip(asked, played, strict=True):
            said = len(turns[place])
            if result.failure or len(result.observations) < said:
                continue
            self.observations[ended[place][:2]][said - 1 :] = result.observations[-1:]  # it may be held again
            if not result.ended and said < questions[place].turns:
                found[place] = self._between.ids(result.observations[-1])
        return found
