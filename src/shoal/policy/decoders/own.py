"""shoal's own decoder: each prompt is read once, and its completions attend to that one copy (`bucket`). What several
prompts begin with is read once for all of them (`families`, `prefix`).

The loop runs the model's own forward pass. Prompts are padded on the right, where causal attention does not see the
padding. A completion that has ended leaves the batch at once, so that only living ones cost matrix products.

Shape suffixes: Q prompts, P positions in a prompt behind its prefix, B living completions, C hidden size, V vocabulary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.errors import UserError, say_once
from shoal.policy.attention import KeysValues, Reading, attention
from shoal.policy.decoders.base import Request, Sampled, Sampling
from shoal.policy.decoders.bucket import Bucket
from shoal.policy.decoders.graphs import Graphs
from shoal.policy.decoders.rows import Rows
from shoal.policy.decoders.turns import Conversations
from shoal.policy.device import Placement, give_back, is_out_of_memory
from shoal.policy.families import batches, families
from shoal.policy.loading import LanguageModel
from shoal.policy.pictures import positions
from shoal.policy.products import cast_once
from shoal.policy.vision import output_logits, read, read_prefix
from shoal.protocols import OnProgress

CACHE_BYTES = 2**30
"""Keys and values of one decoding batch; more questions than fit are decoded in several batches."""

BUCKET_RATIO = 2.0
"""Longest to shortest prompt among those that are read and decoded together, at most. Each group costs products of its
own at every token; padding costs little, as it is once for all completions of a prompt."""
PREFILL_TOKENS = 8192
"""Prompt tokens that are read in one pass."""
LOOK = 16
"""Tokens that are drawn with `graphs` before the host looks which completions have ended."""


class OwnDecoder:
    """Decodes with the weights that are trained, where they are."""

    context = None
    holds_conversations = True

    def __init__(self, lm: LanguageModel, placement: Placement) -> None:
        self.lm, self.placement = lm, placement
        self._graphs = Graphs(lm.model, placement) if placement.device.type == "cuda" else None
        self._most, self._has_decoded = sys.maxsize, False  # of completions of a batch

    def update_weights(self) -> None:
        """Nothing to do."""

    def decode(self, request: Request) -> list[list[Sampled]]:
        """Where memory runs out, fewer questions are answered at once from then on, with the same answers. A question
        without room for its answers alone gets none. Raises `UserError` if that is so of the first."""
        model, G, dialogue = self.lm.model, request.num_generations, request.dialogue
        longest = dialogue.longest if dialogue else request.sampling.max_completion_length
        room = CACHE_BYTES // cache_bytes_per_token(model)
        found: list[list[Sampled]] = [[] for _ in request.prompts]
        done = 0
        kept = None if self._graphs is None else self._graphs.copies
        with cast_once(model, self.placement, kept), reporting(model, request.on_progress) as tell:
            for batch in batches(request.prompts, room, G * longest):
                groups = self._answers(request, batch, lambda ended, done=done: tell(done + ended))  # type: ignore[misc]
                done += len(batch)
                for number, group in zip(batch, groups, strict=True):
                    found[number] = group
        return found

    def _answers(self, request: Request, batch: list[int], tell: OnProgress) -> list[list[Sampled]]:
        """The answers to some of the prompts, at once or as many as there is memory for."""
        G, dialogue, half = request.num_generations, request.dialogue, len(batch) // 2
        if len(batch) > max(1, self._most // G):
            return self._answers(request, batch[:half], tell) + self._answers(request, batch[half:], tell)
        try:
            groups = sample(
                self.lm.model,
                [request.prompts[number] for number in batch],
                G,
                request.sampling,
                request.stop_ids,
                self.placement,
                [request.seeds[number] for number in batch],
                tell,
                Conversations(dialogue, batch, G) if dialogue else None,
                self._graphs,
                request.on_tokens,
            )
            self._has_decoded = True
            return groups
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        give_back()  # now that nothing refers to what the batch had
        self._most = half * G
        said = f"memory ran out while answering {len(batch)} question(s) at once"
        if len(batch) == 1 and not self._has_decoded:
            raise UserError(f"{said}: lower --num-generations or --max-completion-length")
        say_once(f"{said}: fewer are asked at once from now on, and one that alone takes too much gets no answer")
        return self._answers(request, batch, tell) if len(batch) > 1 else [[]]


@contextmanager
def reporting(model: Any, on_progress: OnProgress | None) -> Iterator[OnProgress]:
    """Gives the function that takes the number of answered questions and passes it on to `on_progress`. It is called
    before each layer, too, so that a long pass can be ended."""
    if on_progress is None:
        yield lambda answered: None
        return
    now = 0

    def tell(answered: int) -> None:
        nonlocal now
        now = answered
        on_progress(now)

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    hooks = [layer.register_forward_pre_hook(lambda *_: on_progress(now)) for layer in layers]
    try:
        yield tell
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    num_generations: int,
    sampling: Sampling,
    stop_ids: frozenset[int],
    placement: Placement,
    seeds: Sequence[int],
    tell: Callable[[int], None] = lambda answered: None,
    talk: Conversations | None = None,
    graphs: Graphs | None = None,
    on_tokens: Callable[[Sampled], None] | None = None,
) -> list[list[Sampled]]:
    """`num_generations` completions for each of `prompts` (token ids), in one batch.

    The completions of a prompt depend on its seed alone, not on the rest of the batch. `tell` gets the number of
    prompts whose completions have all ended, after each token. `talk`: an environment answers, and completions go on.
    `graphs`: steps have static shapes, and the host looks at the tokens only now and then. `on_tokens` gets the first
    completion so far at each look.
    """
    G = num_generations
    results = [Sampled() for _ in range(len(prompts) * G)]
    longest = sampling.max_completion_length if talk is None else talk.longest
    turns = [1] * len(prompts) if talk is None else talk.turns
    chance_RT = chances(seeds, G, [sampling.max_completion_length * most for most in turns])
    buckets, order, first = [], [], []
    for family in families(prompts):
        L = family.shared
        prefix = read_prefix(model, prompts[family.members[0]][:L], placement) if L else []
        # A token of the prefix costs attention alone, about an eighth of what a token costs that is read.
        with attention(model), placement.autocast():
            for chosen in length_batches([len(prompts[q]) - L + L // 8 for q in family.members]):
                asked = [family.members[i] for i in chosen]
                layers, logits_QV = _read(model, prefix, [prompts[q] for q in asked], L, placement.device)
                first.append(logits_QV.repeat_interleave(G, 0))
                lengths, ends = [len(prompts[q]) - L for q in asked], [positions(prompts[q])[-1] for q in asked]
                buckets.append(Bucket(prefix, layers, lengths, G, longest, ends, graphs is not None))
                order += [q * G + g for q in asked for g in range(G)]
        del layers  # buckets have what they need of it
    logits_BV = torch.cat(first)
    if not logits_BV.amax(-1).isfinite().all():
        raise UserError("the model gives no finite numbers: its weights are damaged, or have diverged in training")
    rows = Rows(buckets, chance_RT[order], sampling, LOOK if graphs is not None and talk is None else 1)
    if graphs is not None:
        rows = graphs.rows(rows)
    over = [False] * len(order)
    with attention(model):
        rows.draw(logits_BV)
        for drawn in range(1, longest + 1):
            if drawn > 1:
                if graphs is None:
                    rows.make_room()
                    rows.step(model, placement)
                else:
                    graphs.step(rows)
            if drawn > 1 and rows.count < rows.look and drawn < longest:
                continue
            heard = _take(rows, order, results, over, stop_ids, talk, sampling)
            tell(len(prompts) - len({order[number] // G for number, end in enumerate(over) if not end}))
            if on_tokens is not None:
                on_tokens(results[0])
            if all(over):
                break
            rows.drop([over[number] for number in rows.living])
            if talk is not None:
                places = talk.drawn([order[number] for number in rows.living], results, chance_RT.shape[1])
                rows.read_next([heard.get(number, 0) for number in rows.living], places)
    return [results[q * G : (q + 1) * G] for q in range(len(prompts))]


def _take(
    rows: Rows,
    order: Sequence[int],
    results: Sequence[Sampled],
    over: list[bool],
    stop_ids: frozenset[int],
    talk: Conversations | None,
    sampling: Sampling,
) -> dict[int, int]:
    """Adds what `rows` have drawn to `results`, and says in `over` which completions have ended. Completions are
    numbered as `rows` number them; `order` has their places in `results`. In conversations it gives the tokens to read
    next."""
    tokens_BW, logps_BW = rows.drawn()
    living = [(place, number) for place, number in enumerate(rows.living) if not over[number]]
    if talk is not None:
        chosen = [order[number] for _, number in living]
        tokens, logps = [tokens_BW[place][0] for place, _ in living], [logps_BW[place][0] for place, _ in living]
        heard, ended = talk.take(chosen, results, tokens, logps, sampling, stop_ids)
        for (_, number), end in zip(living, ended, strict=True):
            over[number] = end
        return {number: token for (_, number), token in zip(living, heard, strict=True)}
    for place, number in living:
        result = results[order[number]]
        for token, logp in zip(tokens_BW[place], logps_BW[place], strict=True):
            result.token_ids.append(token)
            result.logps.append(logp)
            if token in stop_ids:
                result.stopped = over[number] = True
                break
    return {}


def chances(seeds: Sequence[int], num_generations: int, lengths: Sequence[int]) -> torch.Tensor:
    """A number in [0, 1) for each token of each completion, drawn on the processor: the same on every machine."""
    generator = torch.Generator()
    drawn = [
        torch.rand(num_generations, length, generator=generator.manual_seed(seed), dtype=torch.float64)
        for seed, length in zip(seeds, lengths, strict=True)
    ]
    longest = max(lengths)
    return torch.cat([torch.nn.functional.pad(chance_GT, (0, longest - chance_GT.shape[1])) for chance_GT in drawn])


def length_batches(lengths: list[int]) -> Iterator[list[int]]:
    """Batches of indices of prompts with similar lengths, of at most `PREFILL_TOKENS` padded tokens."""
    chosen: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        much = lengths[index] * (len(chosen) + 1) > PREFILL_TOKENS
        if chosen and (much or lengths[index] > BUCKET_RATIO * lengths[chosen[0]]):
            yield chosen
            chosen = []
        chosen.append(index)
    if chosen:
        yield chosen


def _read(
    model: Any, prefix: Sequence[KeysValues], prompts: list[Sequence[int]], shared: int, device: torch.device
) -> tuple[list[KeysValues], torch.Tensor]:
    """Reads prompts behind a prefix, which is their first `shared` tokens. Returns their keys and values by layer, and
    the logits (Q, V) of the first tokens of their completions."""
    lengths = [len(prompt) - shared for prompt in prompts]
    ids_QP = torch.zeros(len(prompts), max(lengths), dtype=torch.long)
    positions_QP = torch.zeros_like(ids_QP)
    for row, prompt in enumerate(prompts):
        ids_QP[row, : lengths[row]] = torch.tensor(prompt[shared:])
        positions_QP[row, : lengths[row]] = torch.tensor(positions(prompt)[shared:-1])
    reading = Reading(prefix, keep=True)
    out = read(model, ids_QP.to(device), positions_QP.to(device), reading)
    last_QC = out.last_hidden_state[range(len(prompts)), [length - 1 for length in lengths]]
    return reading.layers, output_logits(model, last_QC)


def cache_bytes_per_token(model: PreTrainedModel) -> int:
    """Bytes of keys and values that one token of one sequence takes (float32)."""
    config = model.config.get_text_config()
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(2 * 4 * config.num_hidden_layers * heads * head_dim)
