"""The load of the experts in a mixture of experts, and the auxiliary loss that keeps it even.

    coefficient = router_coefficient(model, "Qwen/Qwen3-30B-A3B")   # 0.001

Shape suffixes: R rows, S positions in a row, N = R S positions, E experts, T trained tokens.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from shoal.errors import UserError
from shoal.learn.batch import MicroBatch


def router_coefficient(model: Any, name: str) -> float:
    """The weight of `load_balancing` in the loss, which the model's configuration declares, as in TRL. 0 for a model
    without experts. Raises `UserError` for what is no weight."""
    coefficient: float = getattr(model, "router_aux_loss_coef", 0.0)  # transformers sets it where there are experts
    if not 0 <= coefficient < math.inf:
        raise UserError(
            f"model '{name}' declares router_aux_loss_coef = {coefficient} in its config.json: it has to be 0.0 or more"
        )
    return coefficient


def load_balancing(router_logits: Sequence[torch.Tensor], counts_N: torch.Tensor, top_k: int) -> torch.Tensor:
    """E times the sum over experts of f P: f is the mean number of a token's `top_k` choices that an expert is, P its
    mean probability (Switch Transformer, arXiv 2101.03961, eqs. 4 to 6, over all layers). `top_k` if loads are even.

    `router_logits`: (N, E) of each layer with experts. `counts_N`: how often each position counts. As transformers has
    it, whose models choose among softmax probabilities.
    """
    counts_N1, total = counts_N[:, None], len(router_logits) * counts_N.sum()
    chosen_E = probs_E = counts_N.new_zeros(router_logits[0].shape[-1])
    for logits_NE in router_logits:
        probs_NE = torch.softmax(logits_NE, -1, torch.promote_types(logits_NE.dtype, torch.float32))
        best_NE = torch.zeros_like(probs_NE).scatter_(-1, probs_NE.topk(top_k, -1).indices, 1.0)
        chosen_E = chosen_E + (best_NE * counts_N1).sum(0) / total
        probs_E = probs_E + (probs_NE * counts_N1).sum(0) / total
    return len(chosen_E) * torch.sum(chosen_E * probs_E)


def readers(batch: MicroBatch) -> torch.Tensor:
    """(N,): for each position the number of trained completions that read it. A prompt stands in a row once, but counts
    for each of its completions, as if each had a row of its own. Padding counts 0."""
    last_T = torch.ones_like(batch.sequences_T, dtype=torch.bool)
    last_T[:-1] = batch.sequences_T[1:] != batch.sequences_T[:-1]
    rows = batch.rows_T[last_T]
    read = batch.mask_RSN()[rows, batch.columns_T[last_T]].float()
    return torch.zeros_like(batch.input_ids_RS, dtype=read.dtype).index_add_(0, rows, read).flatten()
