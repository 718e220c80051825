"""Conversations while they are decoded: all in one batch, although each ends at another time.

Where a turn of the policy ends, the environment answers. Its words are read token by token in the same passes in which
other conversations are at their own turns: so every token is computed once, and the batch stays whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import torch

from shoal.policy.draw import Sampling
from shoal.policy.plain import PlainText
from shoal.policy.template import ChatFrame, Slot
from shoal.rollout import Question
from shoal.sandbox.replay import Replayer

KNOWN: Final = 1024
"""Observations whose tokens are remembered: they are read while a conversation is held and when it is learned from, and
many are alike."""
OBSERVED: Final = 256
"""Tokens for which there is room after each turn. A conversation of longer observations may be cut short."""


@dataclass
class Sampled:
    """One completion as tokens; `stopped` when it ended by itself: by a stop token, or as its environment says."""

    token_ids: list[int] = field(default_factory=list)
    """The policy's own, of all turns."""
    logps: list[float] = field(default_factory=list)
    """Log-probability (nats) of each token under the distribution that it was drawn from."""
    stopped: bool = False


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


class Conversations:
    """The conversations of a batch: G about each question, in rows."""

    def __init__(
        self,
        questions: Sequence[Question],
        num_generations: int,
        replayer: Replayer,
        read: Callable[[list[int]], tuple[str, ...]],
        between: Between,
        room: int,
    ) -> None:
        """`read`: the texts of the turns in tokens. `room`: the most tokens behind a prompt."""
        self.room = room
        self.turns = [question.turns for question in questions]
        self.observations: dict[int, list[str]] = defaultdict(list)
        """What the environment has answered in each row."""
        self._questions, self._G = questions, num_generations
        self._replayer, self._read, self._between = replayer, read, between
        self._heard: dict[int, list[int]] = {}
        """Tokens that a row still has to read."""
        self._in_turn: dict[int, int] = defaultdict(int)
        self._steps = 0

    def drawn(self, rows: Sequence[int], results: Sequence[Sampled], most: int) -> list[int]:
        """How many tokens of its own each row has."""
        return [min(len(results[row].token_ids), most - 1) for row in rows]

    def take(
        self,
        rows: Sequence[int],
        results: Sequence[Sampled],
        token_B: torch.Tensor,
        logp_B: torch.Tensor,
        sampling: Sampling,
        stop_ids: frozenset[int],
    ) -> tuple[torch.Tensor, list[bool]]:
        """Takes a drawn token for each living row. Gives the tokens to read in their place, and which rows have
        ended."""
        self._steps += 1
        tokens, ended, over = token_B.tolist(), [False] * len(rows), []
        for place, (row, token, logp) in enumerate(zip(rows, token_B.tolist(), logp_B.tolist(), strict=True)):
            if heard := self._heard.get(row):
                tokens[place] = heard.pop(0)
                continue
            results[row].token_ids.append(token)
            results[row].logps.append(logp)
            self._in_turn[row] += 1
            if token in stop_ids:
                over.append(place)
            else:
                ended[place] = self._in_turn[row] == sampling.max_completion_length
        for place, ids in zip(over, self._answers([rows[place] for place in over], results), strict=True):
            row = rows[place]
            self._heard[row], self._in_turn[row] = ids, 0
            results[row].stopped = not ids
            ended[place] = not ids or self._steps + len(ids) >= self.room
        return torch.tensor(tokens, device=token_B.device), ended

    def _answers(self, rows: Sequence[int], results: Sequence[Sampled]) -> list[list[int]]:
        """The tokens that the environment answers to the turn that just ended in each of `rows`; none where the
        conversation is over. One of which the environment fails is over, too: it is refused when it is scored."""
        questions = [self._questions[row // self._G] for row in rows]
        turns = [self._read(results[row].token_ids) for row in rows]
        asked = [place for place, question in enumerate(questions) if question.turns > 1]
        played = self._replayer.replay([(questions[p].id, turns[p]) for p in asked], scored=False) if asked else []
        found: list[list[int]] = [[] for _ in rows]
        for place, result in zip(asked, played, strict=True):
            said = len(turns[place])
            if result.failure or len(result.observations) < said:
                continue
            self.observations[rows[place]].append(result.observations[-1])
            if not result.ended and said < questions[place].turns:
                found[place] = self._between.ids(result.observations[-1])
        return found
