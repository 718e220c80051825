"""The policy as it was at the start, for the KL divergence."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Reference:
    """A model as it was at the start: a copy, or with LoRA (`policy.lora`) the base itself, which never changes."""

    def __init__(self, model: Any) -> None:
        self.model = model
        adapted = getattr(model, "_hf_peft_config_loaded", False)
        self.copied = None if adapted else copy.deepcopy(model).requires_grad_(False)

    @contextmanager
    def restored(self) -> Iterator[Any]:
        """The model as it was. Without a copy, the trained model is not available meanwhile."""
        if self.copied is not None:
            yield self.copied
            return
        self.model.disable_adapters()
        try:
            yield self.model
        finally:
            self.model.enable_adapters()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What a checkpoint has to keep: nothing if the base is the reference."""
        return {} if self.copied is None else self.copied.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        if self.copied is not None:
            self.copied.load_state_dict(state)
