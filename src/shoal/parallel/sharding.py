"""A model whose weights, gradients and optimiser states are sharded over ranks, by torch's `fully_shard` (FSDP2).

    sharded = Sharded(model, ranks, device, dtype)   # each decoder layer by itself, the rest as one more
    logps = sharded(lambda: ...model...)             # layers gather their weights when they are called
    with sharded.decoding(): sample(model, ...)      # any number of passes, which may differ between ranks

A pass is a collective call: all ranks must make the same number of passes, which `lag` and `decoding` see to. Layers
gather their weights in the precision of matrix products, everything else in float32; gradients are averaged in float32.
Import this file only to shard something: not every torch has `torch.distributed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.parallel.ranks import Ranks

T = TypeVar("T")


class Sharded:
    """`model`, sharded in place. Its parameters are `DTensor`s from now on, for an optimiser too."""

    def __init__(
        self, model: Any, ranks: Ranks, device: torch.device, dtype: torch.dtype, gather: bool | None = None
    ) -> None:
        """`dtype`: of matrix products. `gather`: whether each rank decodes with whole weights; None: if memory allows.

        `model` may be in the processor's memory; its shards move to `device`, a layer at a time.
        """
        self.model = model
        self.ranks = ranks
        self.device = device
        self.dtype = dtype
        self._gather = gather
        size = sum(p.numel() for p in model.parameters())
        self._whole_bytes = size * dtype.itemsize
        mesh = init_device_mesh(device.type, (ranks.size,))
        # Autocast alone would copy the weights of every layer and keep the copies for the backward pass.
        low = dtype if dtype != torch.float32 else None
        precision = MixedPrecisionPolicy(
            param_dtype=low, reduce_dtype=torch.float32 if low else None, cast_forward_inputs=False
        )
        self.layers: list[Any] = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
        for layer in reversed(self.layers):  # inner layers first, if there are any
            fully_shard(layer, mesh=mesh, mp_policy=precision)
        self.root: Any = fully_shard(_Root(model), mesh=mesh)
        # Weights that are gathered first in inference mode could never be trained. The root has to come first.
        self(lambda: None)
        self._reshard()
        for layer in self.layers:
            layer.unshard()
            layer.reshard()

    def __call__(self, compute: Callable[[], T]) -> T:
        """`compute()`, which makes one pass through the model. With gradients enabled, a backward pass must follow."""
        result: T = self.root(compute)
        if not torch.is_grad_enabled():
            self.root.reshard()  # otherwise the backward pass does it
        return result

    def lag(self, passes: int) -> int:
        """How many more passes another rank makes than this one."""
        return max(self.ranks.each(passes)) - passes

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Passes without gradients and without `__call__`, each rank as many as it likes."""
        gather = self._fits() if self._gather is None else self._gather
        self.root.unshard()
        if gather:
            for layer in self.layers:
                layer.set_reshard_after_forward(False)
                layer.unshard()
        try:
            if gather:
                yield
            else:
                with self._in_step():
                    yield
        finally:
            for layer in self.layers:
                layer.set_reshard_after_forward(True)
            self._reshard()

    def whole(self) -> dict[str, torch.Tensor] | None:
        """All weights by name (tied ones under each of their names) in rank zero's main memory; None on other ranks."""
        known: dict[int, torch.Tensor | None] = {}
        state: dict[str, torch.Tensor] = {}
        for name, parameter in self.model.named_parameters(remove_duplicate=False):
            if id(parameter) not in known:
                known[id(parameter)] = self._whole(parameter)
            tensor = known[id(parameter)]
            if tensor is not None:
                state[name] = tensor
        if not self.ranks.is_zero:
            return None
        kept = self.model.state_dict().keys()
        return state | {name: buffer.cpu() for name, buffer in self.model.named_buffers() if name in kept}

    def clip(self, weights: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        """Turns gradients, which FSDP has averaged over ranks, into sums, and scales them down to a norm of at most
        `max_norm`. Returns the norm before."""
        parts = [p.grad.to_local() for p in weights if isinstance(p.grad, DTensor)]
        with torch.no_grad():
            torch._foreach_mul_(parts, self.ranks.size)
            square = _square(parts, self.device)
            self.ranks.add([square])
            norm = square.sqrt()
            torch._foreach_mul_(parts, (max_norm / (norm + 1e-6)).clamp(max=1))
        return norm

    def reference(self) -> ShardedReference:
        """Keeps the model as it is now."""
        return ShardedReference(self)

    def state_of(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The state of an optimiser as it would be without sharding; without tensors on ranks other than zero."""
        state = optimizer.state_dict()
        whole = {
            index: {name: self._whole(v) if isinstance(v, torch.Tensor) else v for name, v in of_one.items()}
            for index, of_one in state["state"].items()
        }
        return {**state, "state": whole}

    def restore(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Loads a state from `state_of`, or from an optimiser of whole weights."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]

        def ours(value: Any, weight: Any) -> Any:
            alike = isinstance(weight, DTensor) and isinstance(value, torch.Tensor) and value.shape == weight.shape
            return _shard_like(value, weight) if alike else value

        mine = {
            index: {name: ours(value, weights[index]) for name, value in of_one.items()}
            for index, of_one in state["state"].items()
        }
        optimizer.load_state_dict({**state, "state": mine})

    def _whole(self, value: torch.Tensor) -> torch.Tensor | None:
        """A tensor that may be sharded, whole, on rank zero in the processor's memory; None on the other ranks."""
        full: torch.Tensor = value.full_tensor() if isinstance(value, DTensor) else value
        return full.detach().cpu() if self.ranks.is_zero else None

    def _fits(self) -> bool:
        """Whether every rank has memory for all weights at once, and enough left to decode."""
        if self.device.type != "cuda":
            return True
        free, _ = torch.cuda.mem_get_info(self.device)
        return not self.ranks.any(free < 1.5 * self._whole_bytes + 2**32)

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """Each rank announces its passes; a rank that is done makes idle passes until all are."""
        done = False

        def announce(*_: object) -> None:
            if not done:
                self.ranks.add([torch.ones(1, device=self.device)])

        backbone = self.model.base_model
        hook = backbone.register_forward_pre_hook(announce)
        try:
            yield
            done = True
            while True:
                busy = torch.zeros(1, device=self.device)
                self.ranks.add([busy])
                if not busy.item():
                    break
                with torch.no_grad(), torch.autocast(self.device.type, self.dtype, self.dtype != torch.float32):
                    backbone(torch.zeros(1, 1, dtype=torch.long, device=self.device), use_cache=False)
        finally:
            hook.remove()

    def _reshard(self) -> None:
        for module in (self.root, *self.layers):
            module.reshard()


class _Root(nn.Module):
    """What `fully_shard` takes for the model: here the head is called apart from the layers below it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[[], T]) -> T:
        return compute()


class ShardedReference:
    """A sharded model as it was at the start: each rank keeps a shard of it and swaps it in when needed."""

    def __init__(self, sharded: Sharded) -> None:
        self.sharded = sharded
        self._weights = [p for p in sharded.model.parameters() if isinstance(p, DTensor)]
        self._kept = [p.to_local().detach().clone() for p in self._weights]

    @contextmanager
    def restored(self) -> Iterator[Any]:
        """The model as it was. The trained model is not available meanwhile."""
        self._swap()
        try:
            yield self.sharded.model
        finally:
            self._swap()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The whole reference on rank zero; empty on the other ranks."""
        with self.restored():
            return self.sharded.whole() or {}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        names = (name for name, p in self.sharded.model.named_parameters() if isinstance(p, DTensor))
        for name, weight, kept in zip(names, self._weights, self._kept, strict=True):
            kept.copy_(_shard_like(state[name], weight).to_local())

    @torch.no_grad()
    def _swap(self) -> None:
        for weight, kept in zip(self._weights, self._kept, strict=True):
            mine = weight.to_local()
            before = mine.clone()
            mine.copy_(kept)
            kept.copy_(before)


def _shard_like(value: torch.Tensor, like: DTensor) -> DTensor:
    """Rank zero's `value`, sharded like `like`."""
    return distribute_tensor(value.to(like.device, like.dtype), like.device_mesh, like.placements)


def _square(tensors: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """The sum of the squares of all elements."""
    sums = [tensor.square().sum() for tensor in tensors if tensor.numel()]
    return torch.stack(sums).sum() if sums else torch.zeros((), device=device)
