"""One model out of N of the same architecture: their weights lie side by side, and each product is a batch of N.

The batch of the stacked model is node by node, with equally many rows for every node: (N R, ...). All that has no
weights, attention with it, goes on as before, row by row.

Shape suffixes: N nodes, R rows of each, I features in, O features out, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from shoal.errors import UserError
from shoal.policy.device import Placement
from shoal.policy.products import FastLinear

NAMES = {"_name_or_path", "architectures", "dtype", "transformers_version"}
"""What in two configurations may differ although the models compute the same."""


class StackedLinear(nn.Module):
    def __init__(self, weight_NOI: nn.Parameter, bias_NO: nn.Parameter | None) -> None:
        super().__init__()
        self.weight, self.bias = weight_NOI, bias_NO

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        N, O, I = self.weight.shape
        rows_NRI = x.reshape(N, -1, I)
        if self.bias is None:
            out_NRO = torch.bmm(rows_NRI, self.weight.mT)
        else:
            out_NRO = torch.baddbmm(self.bias[:, None], rows_NRI, self.weight.mT)
        return out_NRO.view(*x.shape[:-1], O)


class StackedEmbedding(nn.Module):
    """Looks up token t of node n in row n V + t. The padding token has no gradient, as in `nn.Embedding`."""

    def __init__(self, weight_NVO: nn.Parameter, padding: int | None) -> None:
        super().__init__()
        self.weight, self.padding = weight_NVO, padding

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        N, V, O = self.weight.shape
        first_N1 = torch.arange(0, N * V, V, device=ids.device)[:, None]
        out = functional.embedding((ids.reshape(N, -1) + first_N1).view_as(ids), self.weight.view(N * V, O))
        if self.padding is not None and torch.is_grad_enabled():
            out = torch.where((ids == self.padding)[..., None], out.detach(), out)
        return out


class StackedRMSNorm(nn.Module):
    """As Llama and its kin have it: in float32, whatever the weights are in."""

    def __init__(self, weight_NI: nn.Parameter, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = weight_NI, epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        rows_NRI = wide.to(x.dtype).reshape(len(self.weight), -1, x.shape[-1])
        return (self.weight[:, None] * rows_NRI).view(x.shape)


Pairs = list[tuple[nn.Parameter, list[nn.Parameter]]]
"""A stacked weight, and each node's own, which is a view of its slice."""


def stack_models(models: Sequence[PreTrainedModel], name: str, placement: Placement) -> tuple[Any, Pairs]:
    """The stacked model. From now on the weights of `models` are views of its own: what changes here changes there.

    Raises `UserError` for models that differ in more than their weights, that share weights, whose layers are not
    known here, or where the stacked model computes something else than each of them.
    """
    first, kind = models[0], models[0].config.model_type
    named = [dict(model.named_parameters()) for model in models]
    if any(_architecture(model) != _architecture(first) for model in models):
        raise UserError(f"models of unlike architecture cannot be stacked, as '{name}' and the others here")
    if len({id(weight) for weights in named for weight in weights.values()}) < sum(map(len, named)):
        raise UserError(f"models that share weights cannot be stacked, as '{name}' and the others here (with LoRA?)")
    stacked: dict[int, nn.Parameter] = {}
    pairs: Pairs = []
    for key, weight in named[0].items():
        whole = nn.Parameter(torch.stack([weights[key].data for weights in named]), weight.requires_grad)
        stacked[id(weight)] = whole
        pairs.append((whole, [weights[key] for weights in named]))
    model = copy.deepcopy(first, {id(weight): weight for weight in first.parameters()})  # without weights of its own
    for key, module in first.named_modules():
        own = {k: stacked[id(weight)] for k, weight in module.named_parameters(recurse=False)}
        if own:
            model.set_submodule(key, _layer(module, own, f"model '{name}' ({kind})"))
    for whole, weights_of_nodes in pairs:
        for weight, view in zip(weights_of_nodes, whole.data, strict=True):
            weight.data = view
    worst = _error(model, models, placement)
    if not worst < (1e-3 if placement.dtype == torch.float32 else 0.5):  # NaN is refused too
        raise UserError(
            f"model '{name}' ({kind}) cannot be stacked: its log-probabilities come out {worst:.2g} nats off"
        )
    return model, pairs


def _architecture(model: PreTrainedModel) -> tuple[Any, ...]:
    config = {key: value for key, value in model.config.to_dict().items() if key not in NAMES}
    return config, [(key, weight.shape, weight.requires_grad) for key, weight in model.named_parameters()]


def _layer(module: nn.Module, weights: dict[str, nn.Parameter], name: str) -> nn.Module:
    if type(module) in (nn.Linear, FastLinear):
        return StackedLinear(weights["weight"], weights.get("bias"))
    if type(module) is nn.Embedding and module.max_norm is None:
        return StackedEmbedding(weights["weight"], module.padding_idx)
    epsilon = getattr(module, "variance_epsilon", None)  # by this name in Llama's norm and its copies
    if type(module).__name__.endswith("RMSNorm") and weights.keys() == {"weight"} and epsilon is not None:
        return StackedRMSNorm(weights["weight"], epsilon)
    raise UserError(
        f"{name} cannot be stacked: there is no stacked {type(module).__name__}; take swarm.stacked = false"
    )


@torch.no_grad()
def _error(stacked: Any, models: Sequence[Any], placement: Placement) -> float:
    """The greatest difference in nats between the log-probabilities of the stacked model and of each one alone."""
    V = stacked.get_output_embeddings().weight.shape[1]
    ids_RS = torch.tensor([[5 % V, 9 % V, 7 % V, 3 % V], [8 % V, 4 % V, 6 % V, 2 % V]], device=placement.device)
    worst = torch.zeros((), device=placement.device)
    with placement.autocast():
        ours = stacked(ids_RS.repeat(len(models), 1), use_cache=False).logits.float().log_softmax(-1)
        for model, logps_RSV in zip(models, ours.view(len(models), *ids_RS.shape, V), strict=True):
            theirs_RSV = model(ids_RS, use_cache=False).logits.float().log_softmax(-1)
            worst = torch.maximum(worst, (logps_RSV - theirs_RSV).abs().max())  # keeps NaN
    return float(worst)
