"""Drawing a token from logits with few passes over the vocabulary.

Shape suffixes: B rows, V vocabulary, N blocks of it, M tokens in a block.
"""

import torch

from shoal.policy.decoders.base import Sampling

BLOCK = 256
"""Tokens of the vocabulary whose weights are summed first."""


def draw(logits_BV: torch.Tensor, sampling: Sampling, chance_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (B), one for each row, from softmax(logits / temperature) cut to its `top_p` nucleus, and their
    log-probabilities (B) in nats. `logits` are overwritten. At temperature 0 it is the most likely token, for certain.

    Inverts the cumulative distribution at `chance_B`, uniform in [0, 1): first over sums of blocks of the vocabulary,
    then within one block.
    """
    wide = torch.float32 if logits_BV.device.type == "mps" else torch.float64  # which has no float64
    if sampling.temperature == 0:
        return logits_BV.argmax(-1), torch.zeros(len(logits_BV), device=logits_BV.device)
    row_B = torch.arange(len(logits_BV), device=logits_BV.device)
    if sampling.temperature != 1:
        logits_BV = logits_BV.div_(sampling.temperature)
    weights_BV = logits_BV.sub_(logits_BV.amax(-1, keepdim=True)).exp_()
    if sampling.top_p < 1:
        sorted_BV, order_BV = weights_BV.sort(-1, descending=True)
        before_BV = sorted_BV.cumsum(-1, dtype=wide) - sorted_BV
        outside_BV = before_BV >= sampling.top_p * sorted_BV.sum(-1, keepdim=True, dtype=wide)
        weights_BV = weights_BV.masked_fill_(torch.zeros_like(outside_BV).scatter_(-1, order_BV, outside_BV), 0)
    if missing := -weights_BV.shape[1] % BLOCK:
        weights_BV = torch.nn.functional.pad(weights_BV, (0, missing))
    blocks_BNM = weights_BV.view(len(row_B), -1, BLOCK)
    upto_BN = blocks_BNM.sum(-1).cumsum(-1, dtype=wide)
    total_B1 = upto_BN[:, -1:]
    point_B1 = total_B1 * chance_B[:, None].to(row_B.device, wide)
    point_B1 = point_B1.minimum(total_B1.nextafter(torch.zeros_like(total_B1)))  # the product may have been rounded up
    block_B1 = torch.searchsorted(upto_BN, point_B1, right=True)
    rest_B1 = point_B1 - torch.where(block_B1 > 0, upto_BN.gather(1, (block_B1 - 1).clamp(min=0)), 0.0)
    inside_BM = blocks_BNM[row_B, block_B1[:, 0]]
    within_BM = inside_BM.cumsum(-1, dtype=wide)
    index_B1 = torch.searchsorted(within_BM, rest_B1, right=True)
    # Rounding may lead beyond the last token of the block with any probability.
    last_B1 = (inside_BM > 0).long().mul_(torch.arange(1, BLOCK + 1, device=inside_BM.device)).amax(
        -1, keepdim=True
    ) - 1
    index_B1 = torch.minimum(index_B1, last_B1)
    logp_B1 = (inside_BM.gather(1, index_B1) / total_B1).log().to(logits_BV.dtype)
    return (block_B1 * BLOCK + index_B1)[:, 0], logp_B1[:, 0]
