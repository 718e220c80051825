"""What an update does otherwise for a model of which only adapters are trained: its reference, and dropout.

The adapters are peft's, put into the model by `policy.lora`; what is in here also takes a model without any.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


class Reference:
    """A model as it was at the start: a copy, or with adapters the base itself, which never changes."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.copied = None if has_adapters(model) else copy.deepcopy(model).requires_grad_(False)

    @contextmanager
    def restored(self) -> Iterator[Any]:
        """The model as it was. Its trained self is not there meanwhile, where they are one."""
        if self.copied is not None:
            yield self.copied
            return
        self.model.disable_adapters()
        try:
            yield self.model
        finally:
            self.model.enable_adapters()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What a checkpoint has to keep: nothing where the base is the reference."""
        return {} if self.copied is None else self.copied.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        if self.copied is not None:
            self.copied.load_state_dict(state)


def has_adapters(model: Any) -> bool:
    return bool(getattr(model, "_hf_peft_config_loaded", False))


def adapter_dropouts(model: Any) -> list[torch.nn.Dropout]:
    """The layers of `model` that drop what goes into its adapters, at random."""
    named = model.named_modules() if has_adapters(model) else ()
    return [module for name, module in named if ".lora_dropout." in name and isinstance(module, torch.nn.Dropout)]


@contextmanager
def dropping_out(dropouts: Sequence[torch.nn.Dropout], seed: int, device: torch.device) -> Iterator[None]:
    """Dropout is on, and a function of `seed`. Everywhere else, when decoding too, it is off."""
    if not dropouts:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        for layer in dropouts:
            layer.train()
        try:
            yield
        finally:
            for layer in dropouts:
                layer.eval()
