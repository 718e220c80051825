"""The decode step as CUDA graphs: hundreds of small kernels are started at once instead of one by one from Python.

A graph repeats what was captured, with the same shapes at the same addresses. So here rows and the columns of
completions are padded to a few sizes, one graph for each pair of them; what differs from step to step lies in tensors
that are updated in place; and hidden columns get no weight, which leaves the distribution what it is.

In bfloat16 the weights of linear layers are copied for decoding, and copied again before each batch: a step reads 2
bytes of each where autocast alone would read 4, write 2 and read 2 again. Products are the same, since autocast rounds
the same weights. It costs 2 bytes for each of these weights, beside 16 of float32 weights, gradients and AdamW.

Copies, graphs and the keys and values of one batch are kept with the model while shapes and addresses of its weights
stay as they are; an optimiser updates those in place.

Shape suffixes as in `prefix`, and R rows: living completions, and others that fill up.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import torch
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from shoal.policy.device import Placement
from shoal.policy.prefix import Bucket

Run = Callable[[], None]
Forward = Callable[[Any, Sequence[Bucket], torch.Tensor, torch.Tensor], torch.Tensor]
"""Logits (float32) of a model, buckets, the tokens and the positions of their rows."""

LEAST_COLUMNS = 64
"""Columns of completions are padded to this, twice this, and so on; prompts to a multiple of it."""


class Recorder(Protocol):
    """How a step is run for the first time, and made into what repeats it."""

    def warm(self, run: Run) -> None: ...
    def capture(self, run: Run) -> Run: ...


class CUDARecorder:
    """As https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs asks: the first run is on a side stream, for
    what libraries set up then cannot be captured. One pool of memory serves all graphs: they never run at the same
    time, and nothing in it is read after a run."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()

    def warm(self, run: Run) -> None:
        before = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(before)
        with torch.cuda.stream(self.stream):
            run()
        before.wait_stream(self.stream)

    def capture(self, run: Run) -> Run:
        graph = torch.cuda.CUDAGraph()
        # The outer context restores the stream where a capture fails, which `torch.cuda.graph` does not (torch 2.13).
        with torch.cuda.stream(self.stream), torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
            run()
        return graph.replay


class StaticBucket(Bucket):
    """Prompts and completions in tensors whose shapes and addresses stay."""

    def __init__(self, like: Bucket, prompts: int, columns: int, max_length: int, dtype: torch.dtype | None) -> None:
        """Room for `prompts` of up to `columns` tokens, in the layers' shapes of `like`; `dtype`: if not as there."""
        G = like.num_generations
        room = [
            tuple(t.new_zeros(prompts, t.shape[1], columns, t.shape[-1], dtype=dtype) for t in layer)
            for layer in like.prompts
        ]
        super().__init__([(keys, values) for keys, values in room], [1] * prompts, G, max_length)
        self.whole = False
        self.rows = self.all_rows = prompts * G
        self.columns = self.all_columns = max_length - 1
        self.newest_1 = torch.zeros(1, dtype=torch.long, device=self.place_B.device)
        """The column of the newest token."""
        self.column_T = torch.arange(max_length - 1, device=self.place_B.device)

    def __len__(self) -> int:
        return self.rows

    def load(self, buckets: Sequence[Bucket]) -> None:
        """Takes over prompts that have been read; their completions begin."""
        for cache in chain.from_iterable([*self.prompts, *self.own]):
            cache.zero_()  # what is hidden counts 0 times, and that has to be finite
        start = 0
        for bucket in buckets:
            end = start + len(bucket.lengths_Q)
            self.lengths_Q[start:end] = bucket.lengths_Q
            for layer, read in zip(self.prompts, bucket.prompts, strict=True):
                for cache, tensor in zip(layer, read, strict=True):
                    cache[start:end, :, : tensor.shape[2]] = tensor
            start = end
        torch.arange(self.all_rows, out=self.place_B)
        self.steps, self.rows = 0, self.all_rows

    def next_sizes(self, living: int) -> tuple[int, int]:
        """Makes room for one more token of each completion. Returns the rows and columns of this step."""
        self.steps += 1
        self.newest_1.fill_(self.steps - 1)
        self.rows = min(self.all_rows, _power_of_two(living))
        self.columns = min(self.all_columns, max(LEAST_COLUMNS, _power_of_two(self.steps)))
        return self.rows, self.columns

    def begin_step(self) -> torch.Tensor:
        """Positions (R) of the newest tokens; captured, as all that follows."""
        self._bias = {}
        return self._lengths_B() + self.newest_1

    def _reorder(self, order_B: torch.Tensor) -> None:
        place_B = self.place_B[order_B]
        self.place_B.fill_(self.all_rows)  # of rows that fill up: no completion's
        self.place_B[: len(place_B)] = place_B

    def _append(self, layer: int, key_BHD: torch.Tensor, value_BHE: torch.Tensor) -> tuple[torch.Tensor, ...]:
        caches = tuple(cache[: self.rows, :, : self.columns] for cache in self.own[layer])
        for cache, newest in zip(caches, (key_BHD, value_BHE), strict=True):
            cache.index_copy_(2, self.newest_1, newest[:, :, None].to(cache.dtype))
        return caches

    def _to_places(self, rows_BHKX: torch.Tensor) -> torch.Tensor:
        every = rows_BHKX.new_zeros(self.all_rows + 1, *rows_BHKX.shape[1:])
        return every.index_copy_(0, self.place_B[: self.rows], rows_BHKX)[:-1]

    def _from_places(self, every: torch.Tensor) -> torch.Tensor:
        return every.index_select(0, self.place_B[: self.rows].clamp(max=self.all_rows - 1))

    def _lengths_B(self) -> torch.Tensor:
        return self.lengths_Q[(self.place_B[: self.rows] // self.num_generations).clamp(max=len(self.lengths_Q) - 1)]

    def _bias_B11N(self, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        length_R1, column_T = self._lengths_B()[:, None], self.column_T[: self.columns]
        hidden_RP = self.position_P >= length_R1
        hidden_T = column_T > self.newest_1
        if window is not None:
            hidden_RP = hidden_RP | (length_R1 + self.newest_1 - self.position_P >= window)
            hidden_T = hidden_T | (self.newest_1 - column_T >= window)
        hidden_RN = torch.cat([hidden_RP, hidden_T.expand(self.rows, -1)], 1)
        return torch.zeros_like(hidden_RN, dtype=dtype).masked_fill_(hidden_RN, -torch.inf)[:, None, None]


class StaticStep:
    """The decode step of one model. It holds no reference to the model, which its life depends on."""

    def __init__(self, model: Any, bucket: StaticBucket, placement: Placement, forward: Forward, recorder: Recorder):
        self.bucket, self.placement, self.forward = bucket, placement, forward
        self.recorder: Recorder | None = recorder
        self.addresses = _addresses(model)
        device, vocabulary = bucket.place_B.device, model.get_output_embeddings().weight.shape[0]
        self.token_R = torch.zeros(bucket.all_rows, dtype=torch.long, device=device)
        self.logits_RV = torch.zeros(bucket.all_rows, vocabulary, device=device)
        low = [] if placement.dtype == torch.float32 else _linear_layers(model)
        self.copies: list[torch.Tensor] = [
            torch.nn.Parameter(layer.weight.to(placement.dtype), requires_grad=False) for layer in low
        ]
        self.replays: dict[tuple[int, int], Run] = {}
        self.warm: set[tuple[int, int]] = set()

    def load(self, model: Any, buckets: Sequence[Bucket]) -> None:
        """Begins a batch, with the weights as they are now."""
        if self.copies:
            torch._foreach_copy_(self.copies, [layer.weight for layer in _linear_layers(model)])
        self.bucket.load(buckets)

    def fits(self, model: Any, prompts: int, columns: int, num_generations: int, max_length: int) -> bool:
        """Whether such a batch can be loaded, and graphs are still right."""
        have = len(self.bucket.lengths_Q), self.bucket.num_generations, self.bucket.all_columns + 1
        room = len(self.bucket.position_P) >= columns
        return have == (prompts, num_generations, max_length) and room and self.addresses == _addresses(model)

    def __call__(self, model: Any, _buckets: Sequence[Bucket], token_B: torch.Tensor) -> torch.Tensor:
        """Reads one token of each living completion. Returns logits (B, V), valid until the next call."""
        self.token_R[: len(token_B)] = token_B
        sizes = self.bucket.next_sizes(len(token_B))
        run = partial(self._run, model)
        if self.recorder is not None and sizes in self.warm and sizes not in self.replays:
            self._capture(model, sizes, run)
        if self.recorder is not None and sizes not in self.warm:
            self.recorder.warm(run)
            self.warm.add(sizes)
        else:
            self.replays.get(sizes, run)()
        return self.logits_RV[: len(token_B)]

    def _capture(self, model: Any, sizes: tuple[int, int], run: Run) -> None:
        assert self.recorder is not None
        try:
            self.replays[sizes] = self.recorder.capture(run)
        except RuntimeError as error:  # what CUDA refuses to capture, and want of memory
            self.recorder = None
            _refused.add(model)
            reason = str(error).strip().partition("\n")[0][:200]
            warnings.warn(f"decoding goes on without CUDA graphs, slower: {reason}", stacklevel=2)

    def _run(self, model: Any) -> None:
        rows, placement = self.bucket.rows, self.placement
        enabled = placement.dtype != torch.float32
        # A cast that is cached would be captured where it is made, and missing where it is used again.
        with torch.autocast(placement.device.type, placement.dtype, enabled, cache_enabled=False), self._copied(model):
            logits_RV = self.forward(model, [self.bucket], self.token_R[:rows], self.bucket.begin_step())
        self.logits_RV[:rows] = logits_RV
        self.bucket._bias = {}  # gives its memory back to the pool

    @contextmanager
    def _copied(self, model: Any) -> Iterator[None]:
        """Has linear layers multiply by the copies of their weights."""
        layers = _linear_layers(model) if self.copies else []
        weights = [layer.weight for layer in layers]
        try:
            for layer, copy in zip(layers, self.copies, strict=True):
                layer.weight = copy
            yield
        finally:
            for layer, weight in zip(layers, weights, strict=True):
                layer.weight = weight


_kept: WeakKeyDictionary[Any, StaticStep] = WeakKeyDictionary()
_refused: WeakSet[Any] = WeakSet()
"""Models of which no graph could be captured."""


def recorder_on(device: torch.device) -> Recorder | None:
    """None where there are no graphs."""
    return CUDARecorder(device) if device.type == "cuda" else None


def static_step(
    model: Any, buckets: Sequence[Bucket], max_length: int, placement: Placement, forward: Forward
) -> StaticStep | None:
    """A step for completions of up to `max_length` tokens of these prompts, which it takes over. None where steps are
    better left as they are: without CUDA, with weights that are not whole, and where capturing has failed before."""
    if not isinstance(model, PreTrainedModel) or _sharded(model) or model in _refused or max_length < 2:
        return None
    G, Q = buckets[0].num_generations, sum(len(bucket.lengths_Q) for bucket in buckets)
    longest = max(len(bucket.position_P) for bucket in buckets)
    step = _kept.get(model)
    if step is None or not step.fits(model, Q, longest, G, max_length):
        recorder = recorder_on(placement.device)
        if recorder is None:
            return None
        _kept.pop(model, None)
        del step  # so that its memory is free before the next is made
        columns = -(-longest // LEAST_COLUMNS) * LEAST_COLUMNS
        dtype = None if placement.dtype == torch.float32 else placement.dtype
        bucket = StaticBucket(buckets[0], Q, columns, max_length, dtype)
        step = _kept[model] = StaticStep(model, bucket, placement, forward, recorder)
    step.load(model, buckets)
    return step


def _sharded(model: Any) -> bool:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    from torch.distributed.fsdp import FSDPModule

    return isinstance(model, FSDPModule)


def _linear_layers(model: Any) -> list[Any]:
    """Those whose weights autocast would round."""
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear | Conv1D)]
    return [m for m in linear if m.weight.dtype == torch.float32]


def _addresses(model: Any) -> list[int]:
    return [tensor.data_ptr() for tensor in chain(model.parameters(), model.buffers())]


def _power_of_two(number: int) -> int:
    """The least that is not below `number`."""
    return 1 << (number - 1).bit_length()
