"""An estimate of the memory that a run takes, before it takes it.

A run is at its peak in one of a few moments, so the estimate is that of the worst one (`estimate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from shoal.learn.activations import Activations, count_activations
from shoal.learn.logprobs import CHUNK_ELEMENTS
from shoal.learn.optim import STATE_BYTES
from shoal.learn.vocabulary import in_place_weights
from shoal.policy.decoders.own import PREFILL_TOKENS, cache_bytes_per_token
from shoal.policy.device import Placement
from shoal.policy.products import LINEAR, cast_bytes

LOGITS_COPIES: Final = 3
"""Of a chunk (`logprobs`): logits, probabilities and one temporary product."""
PASSING_COPIES: Final = 2
"""Of the gradient of the largest matrix, before it is added up: an output and an embedding may share the matrix. Those
that are added up where they are (`vocabulary`) do not count."""
DRAWN_COPIES: Final = 3
"""Of the logits in `policy.decoders.draw`: logits, weights, and those padded to blocks."""
ALLOCATOR_SHARE: Final = 0.1
"""What malloc holds beside what is in use: measured on Linux, 5 to 15 % after a second update."""
KINDS: Final = tuple(
    "program weights optimizer reference gradients activations logits decode_cache checkpoint allocator".split()
)


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model that the estimate needs."""

    parameters: int
    trained: int
    """All parameters, or those of the adapters."""
    largest: int
    """Trained parameters in the largest matrix whose gradient is made anew by each micro-batch."""
    vocabulary: int
    width: int
    """D + 2 F: the numbers that a layer holds for each token while it reads a prompt."""
    cache_per_token: int
    activations: Activations
    adapted: int = 0
    """Trained parameters of adapters of rank 1 on every linear layer but the output layer."""
    cast: int = 0
    """Bytes of the weights that decode (`policy.products`), if they are not those that learn."""

    def with_adapters(self, rank: int) -> Sizes:
        """The same model with LoRA: its activations differ by at most a twentieth."""
        return replace(self, trained=rank * self.adapted, largest=rank * self.width)

    @classmethod
    def of(cls, model: Any, placement: Placement) -> Sizes:
        config = model.config.get_text_config()
        trained = [p for p in model.parameters() if p.requires_grad]
        in_place = set(map(id, in_place_weights(model, placement)))
        head = model.get_output_embeddings()
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        return cls(
            parameters=model.num_parameters(),
            trained=sum(p.numel() for p in trained),
            largest=max((p.numel() for p in trained if id(p) not in in_place), default=0),
            vocabulary=head.weight.shape[0],
            width=config.hidden_size + 2 * inner,
            cache_per_token=cache_bytes_per_token(model),
            activations=count_activations(model, placement),
            adapted=sum(sum(m.weight.shape) for m in model.modules() if isinstance(m, LINEAR) and m is not head),
            cast=cast_bytes(model, placement),
        )


@dataclass(frozen=True)
class Work:
    """What a run does with the nodes that have one model."""

    nodes: int
    optim: str
    reference: bool
    checkpoint_above: int
    """Tokens of the longest pass that is not checkpointed."""
    passes: Sequence[tuple[int, int, int, int]]
    """(R, S, L, T) of the micro-batches of updates: L tokens of a shared prefix."""
    decoded: Sequence[tuple[int, int, int]]
    """(questions, tokens of all their prompts with shared ones counted once, completions of each)."""
    completion_length: int
    cache_limit: int
    """`language.CACHE_BYTES`."""


def estimate(models: Sequence[tuple[Sizes, Work]], program: int, workers: int = 0) -> dict[str, int]:
    """Bytes at the worst moment of a run, for each of `KINDS`: while decoding, in an update, or while a checkpoint is
    written. Kinds that do not occur at that moment are 0.

    `program`: the bytes of the process before it has a model; 0 on a GPU, where the allocator's slack does not count.
    `workers`: processes that keep the models beside it; each may be at its worst moment at the same time.
    """
    processes = max(1, workers)
    lasting = {"program": (1 + workers) * program, "weights": 0, "optimizer": 0, "reference": 0}
    moments: list[dict[str, int]] = []
    for sizes, work in models:
        frozen, whole = sizes.parameters - sizes.trained, sizes.trained == sizes.parameters
        shared = min(processes, work.nodes) * frozen  # by the nodes of a process
        lasting["weights"] += 4 * (shared + work.nodes * sizes.trained)
        lasting["optimizer"] += round(STATE_BYTES[work.optim] * sizes.trained * work.nodes)
        lasting["reference"] += 4 * sizes.parameters * work.nodes if work.reference and whole else 0
        moments += [_updating(sizes, work, each) for each in work.passes]
        moments += [_decoding(sizes, work, each) for each in work.decoded]
        moments.append({"checkpoint": 4 * sizes.trained})  # writing copies the weights
    worst = max(moments, key=lambda moment: sum(moment.values()), default={})
    parts = lasting | {kind: processes * size for kind, size in worst.items()}
    parts["allocator"] = round(ALLOCATOR_SHARE * sum(parts.values())) if program else 0
    return {kind: parts.get(kind, 0) for kind in KINDS}


def _updating(sizes: Sizes, work: Work, rows: tuple[int, int, int, int]) -> dict[str, int]:
    """At the start of a backward pass, when the gradients of earlier micro-batches are kept already."""
    R, S, L, T = rows
    of_prefix = L * sizes.cache_per_token  # the gradients of its keys and values
    chunk = min(T, max(1, CHUNK_ELEMENTS // sizes.vocabulary))
    return {
        "gradients": 4 * (sizes.trained + PASSING_COPIES * sizes.largest),
        "activations": round(sizes.activations.kept(R, S, work.checkpoint_above, L) + of_prefix),
        "logits": LOGITS_COPIES * 4 * chunk * sizes.vocabulary,
    }


def _decoding(sizes: Sizes, work: Work, batch: tuple[int, int, int]) -> dict[str, int]:
    """Keys and values, and what reading the prompts and drawing tokens take besides, with the weights for it."""
    questions, prompts, each = batch
    wanted = sizes.cache_per_token * (prompts + questions * each * work.completion_length)
    passes = min(questions, max(1, -(-wanted // max(1, work.cache_limit))))
    together = -(-questions // passes)
    read = 4 * min(PREFILL_TOKENS, -(-prompts // passes)) * sizes.width
    drawn = DRAWN_COPIES * 4 * together * each * sizes.vocabulary
    return {"decode_cache": wanted // passes + read + sizes.cast, "logits": drawn}
