"""How families of vision-language models take pictures: what stands around one in a prompt, and in which order its
tokens are read. The models and their image processors are transformers' own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class VisionFamily:
    """One `model_type` of transformers."""

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
