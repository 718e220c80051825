"""What was found out about a model when it was used for the first time, kept for the next time.

    number, reason = remembered("decoder", lm, placement, tried)

It depends on the architecture and settings of the model, hardly on the values of its weights: some of each tensor tell
models apart. Other versions of the libraries, or of the code that decodes and learns, try again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers

from shoal.config.caches import cache_folder
from shoal.errors import UserError
from shoal.policy.device import Placement
from shoal.policy.trial import edge_tokens

if TYPE_CHECKING:
    from shoal.policy.loading import LanguageModel

SAMPLED = 64
"""Numbers of each tensor that count."""


def remembered(
    kind: str, lm: LanguageModel, placement: Placement, find: Callable[[], tuple[int, str]]
) -> tuple[int, str]:
    """What `find` gave for this model before, or what it gives now. Errors are not kept."""
    path = None
    with suppress(OSError, ValueError, TypeError, UserError):  # none is kept, or it is damaged
        path = cache_folder("trials") / f"{_identity(kind, lm, placement)}.json"
        number, reason = json.loads(path.read_text())
        return int(number), str(reason)
    found = find()
    if path is not None:
        with suppress(OSError):  # a full disk: it is tried again next time
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found))
    return found


def _identity(kind: str, lm: LanguageModel, placement: Placement) -> str:
    files = sorted(path for room in ("policy", "learn") for path in (Path(__file__).parents[1] / room).rglob("*.py"))
    config = lm.model.config.to_dict() | {"_name_or_path": ""}
    where = placement.device.type, str(placement.dtype), torch.__version__, transformers.__version__
    known = blake2b(json.dumps([kind, config, where, edge_tokens(lm)], sort_keys=True, default=str).encode())
    for path in files:
        known.update(path.read_bytes())
    for name, tensor in lm.model.state_dict().items():
        known.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if ".lora_" not in name:  # new adapters begin with random numbers
            some = tensor.flatten()[:: max(1, tensor.numel() // SAMPLED)][:SAMPLED]
            known.update(some.float().cpu().numpy().tobytes())
    return known.hexdigest()[:32]
