"""What memory a run takes, before it takes it: activations are counted on the model itself, the rest is added up.

    counted = count_activations(model, placement)         # three passes over a few tokens
    counted.kept(rows=2, length=512, checkpointed=False)  # bytes kept for the backward pass

A run is at its peak in one of a few moments, so the estimate is that of the worst one (`estimate`).

Shape suffixes as in `batch`: R rows, S positions in a row, T trained tokens, V vocabulary.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.pytorch_utils import Conv1D

from shoal.learn.batch import MicroBatch, Row, Trained, micro_batches
from shoal.learn.logprobs import CHUNK_ELEMENTS, trained_hidden
from shoal.learn.optim import STATE_BYTES
from shoal.policy.decode import PREFILL_TOKENS, cache_bytes_per_token
from shoal.policy.device import Placement

KEPT_AT_MOST: Final = 2**31
"""Bytes of activations above which gradient checkpointing is the default."""
COUNTED_LENGTHS: Final = (16, 32, 64)
"""Tokens in the rows that are counted: multiples of 8, as long rows are to the attention of GPUs."""
LOGITS_COPIES: Final = 3
"""Logits, probabilities and one passing product, of a chunk (`logprobs`)."""
PASSING_COPIES: Final = 2
"""Gradients of the largest matrix on their way to the one that is kept: an output and an embedding may share it."""
DRAWN_COPIES: Final = 3
"""Logits, weights, and those padded to blocks (`policy.draw`)."""
LINEAR: Final = (torch.nn.Linear, Conv1D)
ALLOCATOR_SHARE: Final = 0.1
"""What malloc holds beside what is in use: measured on Linux, 5 to 15 % after a second update."""
KINDS: Final = (
    "program",
    "weights",
    "optimizer",
    "reference",
    "gradients",
    "activations",
    "logits",
    "decode_cache",
    "checkpoint",
    "allocator",
)


@dataclass(frozen=True)
class Growth:
    """Bytes as a function of rows and their length: a constant, and what grows with R S and with R S^2 (masks)."""

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
    """What one forward pass keeps for the backward pass, in bytes. Logits are not in it (`head_bytes`)."""

    layers: Growth
    """In all layers that can be checkpointed."""
    largest: Growth
    """In the one of them that keeps most."""
    outside: Growth
    inputs: Growth
    """Of those layers: all that checkpointing keeps of them."""

    def kept(self, rows: int, length: int, checkpointed: bool) -> float:
        """Bytes at the beginning of the backward pass; with checkpointing also one layer that is computed again."""
        inside = (self.inputs, self.largest) if checkpointed else (self.layers,)
        return self.outside.at(rows, length) + sum(growth.at(rows, length) for growth in inside)


def count_activations(model: Any, placement: Placement) -> Activations:
    """Counts what the learner's own forward pass keeps, in three short rows; longer ones follow from these.

    Costs less than a second for models of a billion parameters and changes nothing. Deterministic: sizes alone count.
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
    return Activations(whole, max(grown, key=lambda g: g.at(1, 1024), default=Growth()), outside, inputs)


def trial_batch(rows: int, length: int, device: torch.device) -> MicroBatch:
    """`rows` rows of `length` tokens, half of them a prompt's."""
    row = Row([1] * (length // 2), (Trained([1] * (length - length // 2 + 1), 1.0, 1.0, 0),))
    (batch,) = micro_batches([row] * rows, rows * length, device)
    return batch


def count_once(model: Any, placement: Placement, batch: MicroBatch) -> dict[int, tuple[int, int]]:
    """(bytes kept, bytes of its input) for each checkpointable layer by number, and at -1 for all outside them.

    Each storage counts once, where it was kept first; weights do not count. Layers must not be checkpointed now.
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
        return tensor.detach()  # holds the storage, so that no later one has its address

    def enter(number: int, args: tuple[Any, ...]) -> None:
        now.append(number)
        inputs[number] += sum(a.untyped_storage().nbytes() for a in args if isinstance(a, torch.Tensor))

    with _hooked(layers, enter, now.pop), torch.enable_grad(), placement.autocast():
        with torch.autograd.graph.saved_tensors_hooks(keep, _never):
            hidden = trained_hidden(model, batch)
        del hidden
    return {number: (kept[number], inputs[number]) for number in kept}


@contextmanager
def _hooked(
    layers: Sequence[Any], enter: Callable[[int, tuple[Any, ...]], None], leave: Callable[[], int]
) -> Iterator[None]:
    """`enter(number, arguments)` before each layer and `leave()` behind it."""

    def before(number: int) -> Callable[[Any, tuple[Any, ...]], None]:
        return lambda _, args: enter(number, args)

    def behind(*_: Any) -> None:
        leave()

    handles = [layer.register_forward_pre_hook(before(number)) for number, layer in enumerate(layers)]
    handles += [layer.register_forward_hook(behind) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _never(_: Any) -> torch.Tensor:
    raise RuntimeError("what is counted has no backward pass")


def token_budget(setting: int | str, device: torch.device) -> int:
    """What `tokens_per_micro_batch` means: `auto` keeps an update of a model of 135 million parameters within 5 GB."""
    if isinstance(setting, int):
        return setting
    return 16_384 if device.type == "cuda" else 768


def worth_checkpointing(model: Any, placement: Placement, token_budget: int) -> bool:
    """What `gradient_checkpointing = "auto"` means: one micro-batch, as a single row, would keep more than a quarter of
    the device's free memory, or more than 2 GiB."""
    kept = count_activations(model, placement).kept(1, token_budget, checkpointed=False)
    return kept > min(KEPT_AT_MOST, free_bytes(placement.device) / 4)


def free_bytes(device: torch.device) -> int:
    """Memory that can still be taken on `device`; on one without memory of its own, this machine's."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) + torch.cuda.memory_reserved(device)
    return free_ram()


def free_ram() -> int:
    """Bytes that the system would still give to this process: within its control group, where it is in one."""
    known = [line.split() for line in _lines(Path("/proc/meminfo"))]
    available = [1024 * int(words[1]) for words in known if words[0] == "MemAvailable:"]
    group = Path("/sys/fs/cgroup")
    for limit, used in (
        (group / "memory.max", group / "memory.current"),
        (group / "memory/memory.limit_in_bytes", group / "memory/memory.usage_in_bytes"),
    ):
        bound, taken = _lines(limit), _lines(used)
        if bound and taken and bound[0].isdigit():  # else "max"
            available.append(max(0, int(bound[0]) - int(taken[0])))
    return min(available) if available else _physical() // 2


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # another system, or another version of control groups
        return []


def _physical() -> int:
    """All memory of a system that does not say what is free."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True)
class Sizes:
    """What of a model the estimate needs."""

    parameters: int
    trained: int
    """Without adapters: all."""
    largest: int
    """Trained parameters in the largest matrix."""
    vocabulary: int
    width: int
    """D + 2 F: what a token takes while a layer reads it, in numbers."""
    cache_per_token: int
    activations: Activations
    adapted: int = 0
    """Trained parameters of adapters of rank 1 on every linear layer but the output's."""

    def with_adapters(self, rank: int) -> Sizes:
        """About the same model with LoRA: its activations stay what they are, to a twentieth."""
        return replace(self, trained=rank * self.adapted, largest=rank * self.width)

    @classmethod
    def of(cls, model: Any, placement: Placement) -> Sizes:
        config = model.config.get_text_config()
        trained = [p.numel() for p in model.parameters() if p.requires_grad]
        head = model.get_output_embeddings()
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        return cls(
            parameters=model.num_parameters(),
            trained=sum(trained),
            largest=max(trained),
            vocabulary=head.weight.shape[0],
            width=config.hidden_size + 2 * inner,
            cache_per_token=cache_bytes_per_token(model),
            activations=count_activations(model, placement),
            adapted=sum(sum(m.weight.shape) for m in model.modules() if isinstance(m, LINEAR) and m is not head),
        )


@dataclass(frozen=True)
class Work:
    """What a run does with the nodes of one model."""

    nodes: int
    optim: str
    reference: bool
    checkpointed: bool
    passes: Sequence[tuple[int, int, int]]
    """(R, S, T) of the micro-batches of updates."""
    decoded: Sequence[tuple[int, int, int]]
    """(questions, their longest prompt, completions of each) of the batches that are asked."""
    completion_length: int
    cache_limit: int
    """`language.CACHE_BYTES`."""


def estimate(models: Sequence[tuple[Sizes, Work]], program: int) -> dict[str, int]:
    """Bytes at the worst moment of a run, by what takes them (`KINDS`): while decoding, in an update, or while a
    checkpoint is written. What that moment does not have is 0.

    `program` is what the process takes before it has a model; 0 on a GPU, whose allocator's slack does not count.
    """
    lasting = {"program": program, "weights": 0, "optimizer": 0, "reference": 0}
    moments: list[dict[str, int]] = []
    for sizes, work in models:
        frozen, whole = sizes.parameters - sizes.trained, sizes.trained == sizes.parameters
        lasting["weights"] += 4 * (frozen + work.nodes * sizes.trained)  # nodes share what is not trained
        lasting["optimizer"] += round(STATE_BYTES[work.optim] * sizes.trained * work.nodes)
        lasting["reference"] += 4 * sizes.parameters * work.nodes if work.reference and whole else 0
        moments += [_updating(sizes, work, each) for each in work.passes]
        moments += [_decoding(sizes, work, each) for each in work.decoded]
        moments.append({"checkpoint": 4 * sizes.trained})  # what writes weights copies them
    worst = max(moments, key=lambda moment: sum(moment.values()), default={})
    parts = lasting | worst
    parts["allocator"] = round(ALLOCATOR_SHARE * sum(parts.values())) if program else 0
    return {kind: parts.get(kind, 0) for kind in KINDS}


def _updating(sizes: Sizes, work: Work, rows: tuple[int, int, int]) -> dict[str, int]:
    """At the beginning of the backward pass, where gradients of earlier ones lie there already."""
    R, S, T = rows
    chunk = min(T, max(1, CHUNK_ELEMENTS // sizes.vocabulary))
    return {
        "gradients": 4 * (sizes.trained + PASSING_COPIES * sizes.largest),
        "activations": round(sizes.activations.kept(R, S, work.checkpointed)),
        "logits": LOGITS_COPIES * 4 * chunk * sizes.vocabulary,
    }


def _decoding(sizes: Sizes, work: Work, batch: tuple[int, int, int]) -> dict[str, int]:
    """Keys and values, and what reading the prompts and drawing take besides."""
    questions, prompt, each = batch
    per_question = sizes.cache_per_token * (prompt + each * work.completion_length)
    together = min(questions, max(1, work.cache_limit // max(1, per_question)))
    read = 4 * min(PREFILL_TOKENS, prompt * together) * sizes.width
    drawn = DRAWN_COPIES * 4 * together * each * sizes.vocabulary
    return {"decode_cache": per_question * together + read, "logits": drawn}
