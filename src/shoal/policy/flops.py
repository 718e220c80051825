"""Floating-point operations of a language model, counted from its weights.

    cost = Flops.of(model)
    cost.answering(read=120, made=64)         # two for each weight and token
    cost.learning(read=700, trained=512)      # six; with adapters a little over four

Kaplan et al., arXiv 2001.08361, section 2.1. The products between tokens in attention, which are small in short texts,
are left out, and so are what gradient checkpointing computes again and what makes the features of pictures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.policy.attention import reader


@dataclass(frozen=True)
class Flops:
    """The weights that a token is multiplied by: in a vision-language model those that read, not those that see."""

    body: float
    """Those before the output layer; of experts, the ones that a token is sent to."""
    head: float
    """Those of the output layer, for tokens that are predicted."""
    trained: float = 1.0
    """The share of all weights that are trained."""

    @classmethod
    def of(cls, model: Any) -> Flops:
        config = model.config.get_text_config()
        experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
        active = getattr(config, "num_experts_per_tok", experts) / experts if experts else 1.0
        weights = [w for w in model.parameters() if w.dim() > 1]  # not norms and biases
        every = sum(w.numel() for w in weights)
        reading = [(name, w) for name, w in reader(model).named_parameters() if w.dim() > 1]
        used = sum(w.numel() * (active if ".experts." in name else 1.0) for name, w in reading)
        embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        return cls(used - embedding.numel(), head.numel(), sum(w.numel() for w in weights if w.requires_grad) / every)

    def answering(self, read: int, made: int) -> float:
        """Of reading `read` tokens of prompts and making `made` tokens."""
        return self.passes(read + made, made)

    def learning(self, read: int, trained: int, steps: int = 1, others: int = 0) -> float:
        """Of `steps` passes forward and backward over `read` tokens, `trained` of which are predicted, and of `others`
        forward alone. Backward, each weight counts once for its input's gradient, and once for its own if trained."""
        return (steps * (2 + self.trained) + others) * self.passes(read, trained)

    def passes(self, read: int, predicted: int) -> float:
        """Of one pass forward."""
        return 2 * (self.body * read + self.head * predicted)
