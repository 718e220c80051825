"""The model that a trainer trains, as a policy: shoal's decoder answers with it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers.utils.import_utils import is_peft_available

from shoal.errors import UserError
from shoal.parallel.ranks import Ranks
from shoal.policy.decoders.base import Sampling
from shoal.policy.device import Placement
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, language_model
from shoal.policy.products import FastLinear, use_fast_products
from shoal.rollout import Completion, Question


class TrainerPolicy(LanguagePolicy):
    """Answers with the weights of a GRPOTrainer, as they are when it is asked."""

    def __init__(self, trainer: Any, ranks: Ranks) -> None:
        """Raises `UserError` for a model or a tokenizer that shoal cannot decode with."""
        model, args = plain_model(trainer.model), trainer.args
        bfloat16 = args.bf16 or model.dtype == torch.bfloat16
        placement = Placement(trainer.accelerator.device, torch.bfloat16 if bfloat16 else torch.float32)
        sampling = Sampling(args.temperature, args.top_p, args.max_completion_length)
        with answering(model, placement):
            lm = language_model(model.name_or_path, model, trainer.processing_class)
            super().__init__(lm, sampling, placement, ranks)

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        with answering(self.lm.model, self.placement):
            return super().generate(questions, num_generations, seed)

    def save(self, folder: Path) -> None:
        """Nothing: the trainer saves its model."""


def plain_model(model: Any) -> Any:
    """The transformers model in `model`, with its adapters if it has any. Raises `UserError` for adapters that are no
    part of its layers."""
    if not is_peft_available():
        return model
    from peft import PeftModel

    if not isinstance(model, PeftModel):
        return model
    if model.active_peft_config.is_prompt_learning:
        raise UserError("shoal's decoder reads adapters in layers (LoRA), not learned prompts: take a LoraConfig")
    return model.get_base_model()


@contextmanager
def answering(model: Any, placement: Placement) -> Iterator[None]:
    """Within it the model answers: without dropout or checkpoints of activations, and as fast as it can. Afterwards it
    is as its trainer knows it."""
    training = model.training
    model.eval()
    use_fast_products(model, placement.device)
    try:
        yield
    finally:
        for layer in model.modules():  # the trainer may change in place what a layer returns
            if type(layer) is FastLinear:
                layer.__class__ = torch.nn.Linear  # type: ignore[assignment]
        model.train(training)


def check_stop(trainer: Any, lm: LanguageModel) -> None:
    """Raises `UserError` if TRL would mask answers that end as this model's do."""
    declared = lm.model.generation_config.eos_token_id
    ends = {lm.tokenizer.eos_token_id, *(declared if isinstance(declared, list) else [declared])}
    if trainer.args.mask_truncated_completions and not lm.stop_ids <= ends:
        raise UserError(
            "this model has no chat template, so its answers end with their line, which TRL takes for cut short: leave "
            "out mask_truncated_completions"
        )
