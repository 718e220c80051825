"""How models take pictures, by family, and how pictures stand in prompts of token ids: each token of a picture is a
number below 0, which no vocabulary has.

    ids = picture_ids(number=5, count=16, span=16)
    positions([7, *ids, 8])        # 0 to 17, and 18 for the token that follows

All that compares prompts (shared prefixes, packed rows) then holds for pictures, too: equal pictures have equal ids,
and others none in common. No text and no model's answer is ever a number below 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import torch

Id = TypeVar("Id", int, torch.Tensor)
"""A token, or a tensor of them."""
PLACE_BITS: Final = 12
NUMBER_BITS: Final = 38
MOST: Final = 2**PLACE_BITS - 1
"""Tokens of one picture."""


def picture_ids(number: int, count: int, span: int) -> list[int]:
    """The ids of a picture of `count` tokens. `number`: of the picture, in [0, 2**38). `span`: by how much the position
    of what follows is behind that of its first token; `count` in most models."""
    return [-1 - (((number << PLACE_BITS) | span) << PLACE_BITS | place) for place in range(count)]


def number_of(id: Id) -> Id:
    """The number of the picture that a token belongs to."""
    return (-1 - id) >> (2 * PLACE_BITS)


def place_of(id: Id) -> Id:
    """Which of its picture's tokens it is."""
    return (-1 - id) & MOST


def positions(ids: Sequence[int]) -> Sequence[int]:
    """The position of each token of a prompt, and of the one that follows."""
    if not ids or min(ids) >= 0:
        return range(len(ids) + 1)
    found, next_one = [], 0
    for before, id in zip([0, *ids], ids, strict=False):
        if id >= 0:
            start = next_one
            found.append(start)
            next_one += 1
            continue
        if before >= 0 or place_of(id) == 0:
            start = next_one
            next_one += ((-1 - id) >> PLACE_BITS) & MOST
        found.append(start + place_of(id))
    return [*found, next_one]


@dataclass(frozen=True)
class VisionFamily:
    """One `model_type` of transformers. Models and image processors are transformers' own."""

    written: str = "{image}"
    """What stands for a picture in a prompt, around the one token that becomes the picture's own."""
    marked_by: str = "image_token_id"
    """Where the configuration has the token that the chat template writes for a picture."""
    two_way: bool = False
    """Whether the tokens of a picture see each other in both directions."""
    in_grid: bool = False
    """Whether the positions of a picture's tokens are rows and columns (M-RoPE, arXiv 2409.12191)."""
    kinds: str = ""
    """The argument by which its own forward pass is told which tokens are a picture's."""
    splits: bool = False
    """Whether its image processor would cut a large picture into several."""


_TILES: Final = VisionFamily(
    written="<fake_token_around_image><global-img>{image}<fake_token_around_image>", splits=True
)
_GRID: Final = VisionFamily(in_grid=True, kinds="mm_token_type_ids")
FAMILIES: Final = {
    "llava": VisionFamily(),
    "idefics3": _TILES,
    "smolvlm": _TILES,
    "qwen2_vl": _GRID,
    "qwen2_5_vl": _GRID,
    "gemma3": VisionFamily(
        written="\n\n{begin}{image}{end}\n\n", marked_by="boi_token_index", two_way=True, kinds="token_type_ids"
    ),
}
