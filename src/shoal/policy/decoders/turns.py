"""Conversations while they are decoded: all in one batch, although each ends at another time.

Where a turn of the policy ends, the environment answers. Its words are read token by token in the same passes in which
other conversations are at their own turns: so every token is computed once, and the batch stays whole.
"""

from collections import defaultdict
from collections.abc import Sequence

from shoal.policy.decoders.base import Dialogue, Sampled, Sampling


class Conversations:
    """The conversations of a batch: G about each question, in rows."""

    def __init__(self, dialogue: Dialogue, numbers: Sequence[int], num_generations: int) -> None:
        """`numbers`: of the prompts in the batch."""
        self.longest = dialogue.longest
        self.turns = [dialogue.turns[number] for number in numbers]
        self._answer, self._numbers, self._G = dialogue.answer, numbers, num_generations
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
        drawn: Sequence[int],
        logps: Sequence[float],
        sampling: Sampling,
        stop_ids: frozenset[int],
    ) -> tuple[list[int], list[bool]]:
        """Takes a drawn token for each living row. Gives the tokens to read in their place, and which rows ended."""
        self._steps += 1
        tokens, ended, over = list(drawn), [False] * len(rows), []
        for place, (row, token, logp) in enumerate(zip(rows, drawn, logps, strict=True)):
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
        said = [(*divmod(rows[place], self._G), results[rows[place]].token_ids) for place in over]
        answers = self._answer([(self._numbers[q], g, ids) for q, g, ids in said])
        for place, ids in zip(over, answers, strict=True):
            row = rows[place]
            self._heard[row], self._in_turn[row] = ids, 0
            results[row].stopped = not ids
            ended[place] = not ids or self._steps + len(ids) >= self.longest
        return tokens, ended
