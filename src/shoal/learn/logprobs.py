"""Log-probabilities of trained tokens. The logits of all of them are never held at once.

Shape suffixes: R rows, S positions, T trained tokens, D hidden size, V vocabulary.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from shoal.errors import UserError, in_brief, say_once
from shoal.learn.batch import MicroBatch, Row, Trained, micro_batches
from shoal.policy.attention import KeysValues, Reading, attention
from shoal.policy.decoders.base import logprob_errors, ordinary_tokens
from shoal.policy.decoders.generate import GenerateDecoder
from shoal.policy.device import Placement
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel
from shoal.policy.trial import edge_tokens, telling_length
from shoal.policy.verdicts import remembered
from shoal.policy.vision import output_logits, read, read_prefix

CHUNK_ELEMENTS = 2**24
"""Logits held at a time: 64 MiB in float32."""


def trained_hidden(model: PreTrainedModel, batch: MicroBatch, prefix: Sequence[KeysValues] = ()) -> torch.Tensor:
    """The last hidden state (T, D) before each trained token, which predicts it. `prefix`: the keys and values of the
    `batch.shared` tokens that its prompts begin with."""
    with attention(model):
        reading = Reading(prefix, batch.mask_RSN, batch.prompt)
        out = read(model, batch.input_ids_RS, batch.positions_RS, reading)
    return out.last_hidden_state[batch.rows_T, batch.columns_T]  # type: ignore[no-any-return]


def token_logprobs(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, prefix: Sequence[KeysValues] = ()
) -> tuple[torch.Tensor, torch.Tensor]:
    """(logps_T, entropy_T) in nats, in float32 at least: of each trained token under softmax(logits / temperature), and
    the entropy of that distribution (without gradient)."""
    hidden_TD = trained_hidden(model, batch, prefix)
    rows = max(1, CHUNK_ELEMENTS // model.get_output_embeddings().weight.shape[0])
    chunks = list(zip(hidden_TD.split(rows), batch.targets_T.split(rows), strict=True))
    parts = [
        # With several chunks, the logits of each are computed again in the backward pass rather than kept.
        checkpoint(_head, model, hidden, targets, temperature, use_reentrant=False)
        if len(chunks) > 1 and torch.is_grad_enabled()
        else _head(model, hidden, targets, temperature)
        for hidden, targets in chunks
    ]
    return torch.cat([logps for logps, _ in parts]), torch.cat([entropy for _, entropy in parts])


def separate_logprobs(model: Any, batch: MicroBatch, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """What `token_logprobs` gives, by the model's own forward pass: for a batch of one completion behind its prompt."""
    logits_TV = model(batch.input_ids_RS, use_cache=False).logits[0, batch.columns_T]
    logits_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32))
    logps_T, entropy_T = _Selected.apply(logits_TV / temperature, batch.targets_T)
    return logps_T, entropy_T


def takes_packed(policy: LanguagePolicy) -> bool:
    """Whether a question's completions are computed together in an update. Where that is not right, each one takes a
    pass of its own, and a line on standard error says so."""
    if isinstance(policy.decoder, GenerateDecoder):
        return False

    def tried() -> tuple[int, str]:
        try:
            check_architecture(policy.lm)
        except UserError as error:
            if policy.lm.vision is not None:
                raise
            return 0, str(error)
        return 1, ""

    packs, reason = remembered("packing", policy.lm, policy.placement, tried)
    if reason:
        say_once(f"{reason}; each of its answers takes a pass of its own, which is slower")
    return bool(packs)


def check_architecture(lm: LanguageModel) -> None:
    """Raises `UserError` if log-probabilities computed here differ from those of the model's own forward pass: its
    attention takes no such mask, or it changes its logits in a way that is not known here."""
    kind = lm.model.config.model_type
    try:
        difference = _packing_error(lm)
    except Exception as error:  # architectures refuse a mask in many ways
        takes = f"does not take a question's answers packed together ({in_brief(error)})"
        raise UserError(f"model '{lm.name}' ({kind}) {takes}") from error
    if not difference < 1e-2:  # NaN is refused too
        off = f"log-probabilities of a question's answers packed together come out {difference:.2g} nats off"
        raise UserError(f"model '{lm.name}' ({kind}): {off}")


@torch.no_grad()
def _packing_error(lm: LanguageModel) -> float:
    """The greatest difference in nats between log-probabilities of packed answers and of separate ones: of rows of
    unequal lengths, one as long as `telling_length` says, with answers that end with `edge_tokens`."""
    a, b, c, d, e, f, g, h = ordinary_tokens(lm.model)
    prompts = [[a, b, c], [a, b, c, *[d, e] * (telling_length(lm.model) // 2)]]
    answers = [[[d, e], [f, g, h], *([d, edge] for edge in edge_tokens(lm))], [[d, e, f], [g]]]
    rows: list[Row] = []
    texts: list[tuple[list[int], list[int]]] = []
    for prompt, group in zip(prompts, answers, strict=True):
        trained = []
        for ids in group:
            trained.append(Trained(ids, 0.0, 0.0, sum(len(answer) for _, answer in texts)))
            texts.append((prompt, ids))
        rows.append(Row(prompt, tuple(trained)))
    placement = Placement(lm.model.device, torch.float32)
    prefix = read_prefix(lm.model, prompts[0][:2], placement)
    ours: dict[int, float] = {}
    for batch in micro_batches(rows, sum(map(len, rows)), lm.model.device, shared=2):
        logps_T, _ = token_logprobs(lm.model, batch, 1.0, prefix)
        ours |= zip(batch.offsets_T.tolist(), logps_T.tolist(), strict=True)
    found = iter(ours[place] for place in sorted(ours))
    drawn = [(prompt, answer, list(islice(found, len(answer)))) for prompt, answer in texts]
    return float(torch.tensor(logprob_errors(lm.model, drawn, placement)).max())


def logits(model: PreTrainedModel, hidden_TD: torch.Tensor, temperature: float) -> torch.Tensor:
    """logits / temperature (T, V), in float32 at least. Give it no more rows than may be held at a time."""
    logits_TV = output_logits(model, hidden_TD)
    return logits_TV if temperature == 1 else logits_TV / temperature


def _head(
    model: PreTrainedModel, hidden_TD: torch.Tensor, targets_T: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logps_T, entropy_T = _Selected.apply(logits(model, hidden_TD, temperature), targets_T)
    return logps_T, entropy_T


class _Selected(torch.autograd.Function):
    """log_softmax(logits_TV)[targets_T] and the entropy of that distribution (without gradient).

    Its gradient is written out: (one-hot - softmax) times that of the log-probability. Autograd would take five more
    tensors of the size of the logits.
    """

    @staticmethod
    def forward(ctx: Any, logits_TV: torch.Tensor, targets_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total_T = torch.logsumexp(logits_TV, -1)
        probs_TV = torch.exp(logits_TV - total_T[:, None])
        entropy_T = total_T - torch.linalg.vecdot(probs_TV, logits_TV)
        ctx.save_for_backward(probs_TV, targets_T)
        ctx.mark_non_differentiable(entropy_T)
        return logits_TV.gather(-1, targets_T[:, None])[:, 0] - total_T, entropy_T

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        probs_TV, targets_T = ctx.saved_tensors
        gradient_T1 = gradients[0][:, None]
        return (probs_TV * -gradient_T1).scatter_add_(-1, targets_T[:, None], gradient_T1), None


class Prefix:
    """The tokens that the prompts of several rows begin with: computed once, forward and backward.

        prefix = Prefix(model, ids, placement)
        for batch in batches:                       # each has its own backward pass
            token_logprobs(model, batch, 1.0, prefix.layers)[0].sum().backward()
        prefix.backward()                           # and the prefix one for all of them

    A batch sees copies of the prefix's keys and values that are cut off from their graph. The gradients of all batches
    add up there; then they go on into the model. By the chain rule that is the gradient of passes that repeat the
    prefix.
    """

    def __init__(self, model: Any, ids: Sequence[int], placement: Placement) -> None:
        """With gradients enabled, the pass keeps its activations until `backward`."""
        self._made = read_prefix(model, ids, placement)
        self.layers: list[KeysValues] = [(_leaf(keys), _leaf(values)) for keys, values in self._made]
        """For `token_logprobs`."""

    def backward(self) -> None:
        """Adds the gradient by way of the prefix to the weights."""
        pairs = [
            (made, leaf.grad)
            for of_layer, leaves in zip(self._made, self.layers, strict=True)
            for made, leaf in zip(of_layer, leaves, strict=True)
            if leaf.grad is not None
        ]
        torch.autograd.backward([made for made, _ in pairs], [gradient.to(made.dtype) for made, gradient in pairs])


def _leaf(made: torch.Tensor) -> torch.Tensor:
    """Its gradient adds up in float32 at least, whatever precision the pass has."""
    wide = torch.promote_types(made.dtype, torch.float32)
    return made.detach().to(wide).requires_grad_(made.requires_grad)
