"""The divergence of a student from a teacher, over the whole vocabulary. Their logits are never all held at once.

Shape suffixes: T trained tokens, D hidden size, V vocabulary.
"""

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from shoal.learn.logprobs import CHUNK_ELEMENTS, logits


def token_divergence(
    model: PreTrainedModel, hidden_TD: torch.Tensor, taught_TD: torch.Tensor, temperature: float
) -> torch.Tensor:
    """KL(student || teacher) of softmax(logits / temperature) before each token (T,), in nats, float32 at least. Both
    are `model`: `hidden_TD` are the student's last hidden states, `taught_TD` the teacher's, which get no gradient.

    The reverse divergence of SDPO (arXiv 2601.20802): sum over v of p_v (log p_v - log q_v), p the student's.
    """
    rows = max(1, CHUNK_ELEMENTS // (2 * model.get_output_embeddings().weight.shape[0]))
    chunks = list(zip(hidden_TD.split(rows), taught_TD.split(rows), strict=True))
    again = len(chunks) > 1 and torch.is_grad_enabled()  # logits are then computed once more in the backward pass
    return torch.cat(
        [
            checkpoint(_head, model, hidden, taught, temperature, use_reentrant=False)
            if again
            else _head(model, hidden, taught, temperature)
            for hidden, taught in chunks
        ]
    )


def _head(model: PreTrainedModel, hidden_TD: torch.Tensor, taught_TD: torch.Tensor, temperature: float) -> torch.Tensor:
    # The student's first: up to torch 2.10 autocast keeps a copy of the weights that is made without gradients.
    student_TV = logits(model, hidden_TD, temperature)
    with torch.no_grad():
        taught_TV = logits(model, taught_TD, temperature)
    kl_T: torch.Tensor = _ReverseKL.apply(student_TV, taught_TV)
    return kl_T


class _ReverseKL(torch.autograd.Function):
    """KL(softmax(logits) || softmax(taught)). Its gradient is written out: p (log p - log q - KL)."""

    @staticmethod
    def forward(ctx: Any, logits_TV: torch.Tensor, taught_TV: torch.Tensor) -> torch.Tensor:
        logps_TV = logits_TV.log_softmax(-1)
        ratios_TV = logps_TV - taught_TV.log_softmax(-1)
        probs_TV = logps_TV.exp_()
        kl_T: torch.Tensor = torch.linalg.vecdot(probs_TV, ratios_TV)
        ctx.save_for_backward(ratios_TV.sub_(kl_T[:, None]).mul_(probs_TV))
        return kl_T

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        slopes_TV: torch.Tensor = ctx.saved_tensors[0]
        return slopes_TV * gradients[0][:, None], None
