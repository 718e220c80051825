"""Batched sampling: each prompt is read once, and its completions share what was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, PreTrainedModel

from shoal.policy.device import Placement


@dataclass(frozen=True)
class Sampling:
    """How to draw tokens."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_completion_length: int = 256


@dataclass
class Sampled:
    """One completion as tokens; `stopped` when its last token is one of the stop tokens."""

    token_ids: list[int] = field(default_factory=list)
    stopped: bool = False


@torch.inference_mode()
def sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    num_generations: int,
    sampling: Sampling,
    stop_ids: frozenset[int],
    placement: Placement,
    generator: torch.Generator,
) -> list[list[Sampled]]:
    """`num_generations` completions for each of `prompts` (token ids), in one batch.

    Prompts are padded on the left and read once; the cache is then repeated for the completions of each. Positions
    count real tokens, so padding shifts nothing. Sequences that have ended leave the batch when they are a quarter of
    it.
    """
    device = placement.device
    Q, P = len(prompts), max(map(len, prompts))
    ids_QP = torch.zeros(Q, P, dtype=torch.long)
    mask_QP = torch.zeros(Q, P, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids_QP[row, P - len(prompt) :] = torch.tensor(prompt)
        mask_QP[row, P - len(prompt) :] = 1
    ids_QP, mask_QP = ids_QP.to(device), mask_QP.to(device)
    positions_QP = (mask_QP.cumsum(1) - 1).clamp(min=0)

    cache = DynamicCache(config=model.config)
    with placement.autocast():
        out = model(ids_QP, attention_mask=mask_QP, position_ids=positions_QP, past_key_values=cache, logits_to_keep=1)
    cache.batch_repeat_interleave(num_generations)
    logits_BV = out.logits[:, -1].repeat_interleave(num_generations, 0)
    mask_BT = mask_QP.repeat_interleave(num_generations, 0)
    position_B = positions_QP[:, -1].repeat_interleave(num_generations, 0)

    results = [Sampled() for _ in range(Q * num_generations)]
    active = list(range(len(results)))  # rows of the batch, as indices into `results`
    done = [False] * len(active)
    for step in range(sampling.max_completion_length):
        token_B = draw(logits_BV, sampling, generator)
        for row, token in enumerate(token_B.tolist()):
            if not done[row]:
                result = results[active[row]]
                result.token_ids.append(token)
                result.stopped = done[row] = token in stop_ids
        if all(done) or step + 1 == sampling.max_completion_length:
            break
        if sum(done) * 4 >= len(done):
            rows = [row for row, ended in enumerate(done) if not ended]
            keep = torch.tensor(rows, device=device)
            cache.batch_select_indices(keep)
            token_B, mask_BT, position_B = token_B[keep], mask_BT[keep], position_B[keep]
            active, done = [active[row] for row in rows], [False] * len(rows)
        mask_BT = torch.cat([mask_BT, mask_BT.new_ones(len(active), 1)], 1)
        position_B = position_B + 1
        with placement.autocast():
            out = model(
                token_B[:, None], attention_mask=mask_BT, position_ids=position_B[:, None], past_key_values=cache
            )
        logits_BV = out.logits[:, -1]
    return [results[q * num_generations : (q + 1) * num_generations] for q in range(Q)]


def draw(logits_BV: torch.Tensor, sampling: Sampling, generator: torch.Generator) -> torch.Tensor:
    """One token for each row, from softmax(logits / temperature) cut to its `top_p` nucleus."""
    probs_BV = torch.softmax(logits_BV.float() / sampling.temperature, -1)
    if sampling.top_p < 1:
        sorted_BV, order_BV = probs_BV.sort(-1, descending=True)
        outside_BV = sorted_BV.cumsum(-1) - sorted_BV >= sampling.top_p  # keeps the token that crosses the bound
        sorted_BV = sorted_BV.masked_fill(outside_BV, 0)
        return order_BV.gather(-1, torch.multinomial(sorted_BV, 1, generator=generator))[:, 0]
    return torch.multinomial(probs_BV, 1, generator=generator)[:, 0]


def cache_bytes_per_token(model: PreTrainedModel) -> int:
    """Bytes of keys and values that one token of one sequence takes (float32)."""
    config = model.config.get_text_config()
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(2 * 4 * config.num_hidden_layers * heads * head_dim)
