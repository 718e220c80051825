"""Which prompts begin with the same tokens, so that these are read once.

families([[1, 2, 3, 4], [9], [1, 2, 3, 5]], cost=2)    # [Family((0, 2), 3), Family((1,), 0)]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

PASS: Final = 64
"""What a pass through the model costs beside its tokens, in tokens: the time in which its weights are read."""


@dataclass(frozen=True)
class Family:
    """Prompts that share their first tokens."""

    members: tuple[int, ...]
    """Their numbers."""
    shared: int
    """How many tokens they share; each has at least one of its own. 0: they only stand side by side."""


def families(prompts: Sequence[Sequence[int]], cost: int = PASS) -> list[Family]:
    """All prompts, so that the fewest tokens are read. A shared prefix has to save more than `cost` tokens."""
    order = sorted(range(len(prompts)), key=lambda number: list(prompts[number]))
    alike = [_common(prompts[a], prompts[b]) for a, b in pairwise(order)]
    # best[n]: the most tokens that the first n prompts in order can save, and where their last family begins.
    best: list[tuple[int, int, int]] = [(0, 0, 0)]
    for end in range(1, len(order) + 1):
        choices = [(best[-1][0], end - 1, 0)]
        shared = len(prompts[order[end - 1]]) - 1
        for start in range(end - 2, -1, -1):
            shared = min(shared, alike[start], len(prompts[order[start]]) - 1)
            if shared * (end - 1) <= cost:  # nor does any longer family pay
                break
            choices.append((best[start][0] + shared * (end - start - 1) - cost, start, shared))
        best.append(max(choices))
    found, end = [], len(order)
    alone: list[int] = []
    while end:
        _, start, shared = best[end]
        if shared:
            found.append(Family(tuple(sorted(order[start:end])), shared))
        else:
            alone += order[start:end]
        end = start
    return [*reversed(found), *([Family(tuple(sorted(alone)), 0)] if alone else [])]


def batches(prompts: Sequence[Sequence[int]], room: int, answers: int) -> Iterator[list[int]]:
    """Numbers of prompts to decode together: their tokens and `answers` more for each take at most `room`, with shared
    ones counted once, but there is at least one prompt."""
    batch: list[int] = []
    kept = 0
    for family in families(prompts):
        prefix = family.shared  # the first prompt of a family in a batch brings it
        for number in family.members:
            own = len(prompts[number]) - family.shared + answers
            if batch and kept + prefix + own > room:
                yield batch
                batch, kept, prefix = [], 0, family.shared
            batch.append(number)
            kept += prefix + own
            prefix = 0
    if batch:
        yield batch


def kept_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens of `prompts` whose keys and values are kept while they are decoded together: shared ones count once."""
    saved = sum(family.shared * (len(family.members) - 1) for family in families(prompts))
    return sum(map(len, prompts)) - saved


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many first tokens are the same."""
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
