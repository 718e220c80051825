"""Whether a model is shown pictures here as in its own forward pass, which a new version of a family may change."""

from __future__ import annotations

from typing import Any, Final

import torch

from shoal.errors import UserError, in_brief
from shoal.policy.attention import attention
from shoal.policy.decoders.base import tolerance
from shoal.policy.decoders.own import output_logits
from shoal.policy.device import Placement
from shoal.policy.picture_ids import positions
from shoal.policy.prefix import Reading
from shoal.policy.vision import Vision, read, vision_of
from shoal.rollout import Picture

SIDE: Final = 32


def check_pictures(model: Any, name: str, placement: Placement) -> None:
    """Raises `UserError` if log-probabilities behind a picture are others than in the model's own forward pass. A model
    that reads text alone is not checked."""
    vision = vision_of(model)
    if vision is None:
        return
    try:
        error = picture_error(model, vision, placement)
    except Exception as problem:  # architectures refuse in many ways
        raise UserError(f"model '{name}' cannot be shown pictures here: {in_brief(problem)}") from problem
    if not error < tolerance(placement):  # NaN is refused too
        raise UserError(
            f"model '{name}' cannot be shown pictures here: behind one, its log-probabilities come out {error:.2g} "
            "nats off"
        )


@torch.no_grad()
def picture_error(model: Any, vision: Vision, placement: Placement) -> float:
    """The greatest difference in nats, over the tokens that follow a picture."""
    steps = range(256, 256 + 3 * SIDE * SIDE)
    picture = Picture(SIDE, SIDE, bytes(step * step // 7 % 256 for step in steps))
    shown = vision.ids(model, picture)
    V = model.get_output_embeddings().weight.shape[0]
    after = [5 % V, 9 % V, 7 % V]
    ids = [3 % V, *shown, *after]
    ids_1S = torch.tensor([ids], device=placement.device)
    with attention(model), placement.autocast():
        places = torch.tensor([positions(ids)[:-1]], device=placement.device)
        hidden = read(model, ids_1S, places, Reading()).last_hidden_state
        ours = output_logits(model, hidden[0, -len(after) :])
    with placement.autocast():
        own = vision.own_inputs(ids_1S.masked_fill(ids_1S < 0, vision.image_id), [picture])
        theirs = model(**own, use_cache=False).logits[0, -len(after) :]
    return float((ours.log_softmax(-1) - theirs.to(ours.dtype).log_softmax(-1)).abs().max())
