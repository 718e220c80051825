"""What a forward pass keeps for the backward pass, counted on the model itself; and gradient checkpointing, where that
is too much.

counted = count_activations(model, placement)         # a few passes over a few tokens
counted.kept(rows=2, length=512, above=1024)         # bytes; longer passes would be checkpointed
counted.kept(2, 512, above=1024, shared=300)         # behind a prefix of 300 tokens, which is kept once
with Checkpointing(model, above=1024).of(2048): ...  # a pass of 2048 tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.learn.batch import MicroBatch, Row, Trained, tensors
from shoal.learn.logprobs import trained_hidden
from shoal.policy.attention import KeysValues
from shoal.policy.device import Placement, free_bytes
from shoal.policy.vision import read_prefix

COUNTED_LENGTHS: Final = (16, 32, 64)
"""Tokens in the rows that are counted: multiples of 8, for the attention of GPUs treats other lengths differently."""
KEPT_AT_MOST: Final = 2**31
"""Bytes of activations above which layers are checkpointed."""


@dataclass(frozen=True)
class Growth:
    """Bytes for R rows of length S: a constant, a part that grows with R S, and one that grows with R S^2 (masks)."""

    constant: float = 0.0
    per_token: float = 0.0
    per_pair: float = 0.0

    def at(self, rows: int, length: int) -> float:
        return self.constant + rows * length * (self.per_token + length * self.per_pair)

    @classmethod
    def through(cls, lengths: Sequence[int], counted: Sequence[float]) -> Growth:
        """The parabola through three counts of one row each."""
        (x, y, z), (a, b, c) = lengths, counted
        first, second = (b - a) / (y - x), (c - b) / (z - y)
        pair = (second - first) / (z - x)
        token = first - pair * (x + y)
        return cls(a - x * (token + x * pair), token, pair)


@dataclass(frozen=True)
class Activations:
    """What one forward pass keeps for the backward pass, in bytes, without logits."""

    layers: Growth
    """In all layers that can be checkpointed."""
    largest: Growth
    """In the one that keeps most."""
    outside: Growth
    inputs: Growth
    """Of those layers: all that checkpointing keeps."""
    joined: float = 0.0
    """For each row and each token of a shared prefix: its keys and values beside the row's, in all layers."""
    largest_joined: float = 0.0
    """In the layer where these take most."""

    def kept(self, rows: int, length: int, above: int, shared: int = 0) -> float:
        """Bytes at the beginning of the backward pass. Passes of more than `above` tokens are checkpointed. One layer
        of the rows is then computed again, and counts in full."""
        own, joined = self._of_pass(rows, length, above)
        if rows * length > above:
            own += self.largest.at(rows, length)
        once, _ = self._of_pass(1, shared, above) if shared else (0.0, 0.0)
        return own + once + rows * shared * joined

    def _of_pass(self, rows: int, length: int, above: int) -> tuple[float, float]:
        checkpointed = rows * length > above
        inside, joined = (self.inputs, self.largest_joined) if checkpointed else (self.layers, self.joined)
        return self.outside.at(rows, length) + inside.at(rows, length), joined


def count_activations(model: Any, placement: Placement) -> Activations:
    """Counts what the learner's forward pass keeps of short rows. Longer rows follow from these.

    It takes less than a second for a model of a billion parameters, and changes nothing.
    """
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None) or COUNTED_LENGTHS[-1]
    scale = max(1, -(-COUNTED_LENGTHS[-1] // context))
    lengths = [length // scale for length in COUNTED_LENGTHS]
    counts = [count_once(model, placement, trial_batch(1, length, placement.device)) for length in lengths]
    layers = [layer for layer in counts[0] if layer >= 0]
    grown = [Growth.through(lengths, [count[layer][0] for count in counts]) for layer in layers]
    inputs = Growth.through(lengths, [sum(count[layer][1] for layer in layers) for count in counts])
    outside = Growth.through(lengths, [count[-1][0] for count in counts])
    whole = Growth.through(lengths, [sum(count[layer][0] for layer in layers) for count in counts])
    largest = max(grown, key=lambda g: g.at(1, 1024), default=Growth())
    with torch.no_grad():
        prefix = read_prefix(model, [1] * lengths[0], placement)
    behind = count_once(model, placement, trial_batch(1, lengths[0], placement.device, lengths[0]), prefix)
    joined = [(behind[layer][0] - counts[0][layer][0]) / lengths[0] for layer in behind]
    return Activations(whole, largest, outside, inputs, sum(joined), max(joined))


def trial_batch(rows: int, length: int, device: torch.device, shared: int = 0) -> MicroBatch:
    """`rows` rows of `length` tokens, behind `shared` ones; half of them are the prompt."""
    row = Row([1] * (shared + length // 2), (Trained([1] * (length - length // 2 + 1), 1.0, 1.0, 0),))
    return tensors([row] * rows, device, shared)


def count_once(
    model: Any, placement: Placement, batch: MicroBatch, prefix: Sequence[KeysValues] = ()
) -> dict[int, tuple[int, int]]:
    """(bytes kept, bytes of its input) of each checkpointable layer by number; -1 stands for all outside the layers.

    A storage counts once, where it is kept first; weights do not count. No layer may be checkpointed meanwhile.
    """
    seen = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    kept = dict.fromkeys(range(-1, len(layers)), 0)
    inputs = dict.fromkeys(range(-1, len(layers)), 0)
    now = [-1]

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            kept[now[-1]] += storage.nbytes()
        return tensor.detach()  # keeps the storage alive, so that no later one gets its address

    def enter(number: int, args: tuple[Any, ...]) -> None:
        now.append(number)
        inputs[number] += sum(a.untyped_storage().nbytes() for a in args if isinstance(a, torch.Tensor))

    with _hooked(layers, enter, now.pop), torch.enable_grad(), placement.autocast():
        with torch.autograd.graph.saved_tensors_hooks(keep, _refuse):
            hidden = trained_hidden(model, batch, prefix)
        del hidden
    return {number: (kept[number], inputs[number]) for number in kept}


@contextmanager
def _hooked(
    layers: Sequence[Any], enter: Callable[[int, tuple[Any, ...]], None], leave: Callable[[], int]
) -> Iterator[None]:
    """Calls `enter(number, arguments)` before each layer and `leave()` after it."""

    def before(number: int) -> Callable[[Any, tuple[Any, ...]], None]:
        return lambda _, args: enter(number, args)

    def after(*_: Any) -> None:
        leave()

    handles = [layer.register_forward_pre_hook(before(number)) for number, layer in enumerate(layers)]
    handles += [layer.register_forward_hook(after) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _refuse(_: Any) -> torch.Tensor:
    raise RuntimeError("a pass that is counted has no backward pass")


def checkpoint_above(model: Any, placement: Placement, token_budget: int) -> int:
    """The longest pass, in tokens, that is not checkpointed. It is `token_budget`, or 0 if a single row of so many
    tokens keeps more than a quarter of the device's free memory, or more than 2 GiB."""
    kept = count_activations(model, placement).kept(1, token_budget, above=token_budget)
    return 0 if kept > min(KEPT_AT_MOST, free_bytes(placement.device) / 4) else token_budget


class Checkpointing:
    """Gradient checkpointing in long training passes only: layers keep only their inputs for the backward pass and
    compute the rest again. That takes less memory, and a third more arithmetic."""

    def __init__(self, model: Any, above: int) -> None:
        """`above`: only passes of more tokens are checkpointed."""
        self.above = above
        self._layers: list[Any] = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
        for layer in self._layers:  # the model's own method also makes embeddings ask for gradients
            layer.gradient_checkpointing = True
            layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)

    @contextmanager
    def of(self, tokens: int) -> Iterator[None]:
        """For a forward pass of so many tokens. transformers takes a layer's own `training` for the switch; the modules
        inside the layer stay in evaluation mode."""
        for layer in self._layers:
            layer.training = tokens > self.above
        try:
            yield
        finally:
            for layer in self._layers:
                layer.training = False
