"""A reward model: a transformer with a head that maps a chat, or a question with an answer, to one number.

    reward = ModelReward("Skywork/Skywork-Reward-V2-Qwen3-0.6B", place())
    [[value]] = reward.score([(question, ["42"])])

It reads the question and the answer in its own chat template, or as a pair of texts if it has none. Strangers' text
is cut and contains none of the tokenizer's special tokens.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
import transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from shoal.errors import UserError, in_brief
from shoal.policy.decoders.own import length_batches
from shoal.policy.device import Placement
from shoal.policy.loading import source_of
from shoal.policy.plain import PlainText
from shoal.rewards.reward import FAILED, Pair, Pointwise
from shoal.rollout import Question
from shoal_extras.rewards.escaped import CONTEXT, LEAST, SLOTS, Frame, plain

Scale = Literal["sigmoid", "linear"]


class ModelReward(Pointwise):
    """A frozen reward model."""

    def __init__(
        self,
        name: str,
        placement: Placement,
        label: int = 0,
        scale: Scale = "sigmoid",
        max_characters: int = 4000,
    ) -> None:
        """`label`: which output counts; `scale`: as a probability, or as it is.

        Raises `UserError` for a model that is not a trained reward model or has no such output.
        """
        super().__init__()
        self.name = name
        self.placement = placement
        self.label, self.scale = label, scale
        self.max_characters = max_characters
        self.model, self.tokenizer = _load(name)
        outputs = self.model.config.num_labels
        if label >= outputs:
            raise UserError(f"reward model '{name}' has {outputs} outputs: take a label from 0 to {outputs - 1}")
        ids = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id)
        self._pad = next((int(id) for id in ids if id is not None), 0)
        self.model.config.pad_token_id = self.model.config.get_text_config().pad_token_id = self._pad
        self.model.to(placement.device).eval().requires_grad_(False)
        self._plain = PlainText(self.tokenizer)
        chat = {"user": SLOTS[0], "assistant": SLOTS[1]}
        self._frame = Frame(self.tokenizer, chat, name) if self.tokenizer.chat_template else None
        context = getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or CONTEXT
        self._limit = min(max_characters, (context - len(self._frame or "") - 8) // 2)
        if self._limit < LEAST:
            raise UserError(f"reward model '{name}' reads {context} tokens, which is too few")

    def inputs(self, pairs: Sequence[Pair]) -> dict[str, torch.Tensor]:
        """The model's inputs for questions with answers, one row each: for code that trains one."""
        return self._padded([self._ids(*pair) for pair in pairs])

    @torch.inference_mode()
    def _score(self, pairs: list[Pair]) -> list[float | None]:
        rows = [self._ids(*pair) for pair in pairs]
        values: list[float | None] = [None] * len(rows)
        for chosen in length_batches([len(ids) for ids, _ in rows]):
            inputs = self._padded([rows[i] for i in chosen])
            with self.placement.autocast():
                logits_BL = self.model(**inputs).logits.float().cpu()
            for i, logits_L in zip(chosen, logits_BL, strict=True):
                values[i] = self._value(logits_L)
        return values

    def _value(self, logits_L: torch.Tensor) -> float:
        """NaN is a failure."""
        if self.scale == "sigmoid":
            logits_L = logits_L.sigmoid() if len(logits_L) == 1 else logits_L.softmax(0)
        value = float(logits_L[self.label])
        if math.isnan(value):
            self.failures["nan"] += 1
            return FAILED
        return value

    def _ids(self, question: Question, text: str) -> tuple[list[int], list[int] | None]:
        """Token ids, with their segments where the model tells two texts apart."""
        texts = [self._plain.ids(plain(t, self.max_characters), self._limit) for t in (question.text, text)]
        if self._frame is not None:
            return self._frame.fill(texts), None
        # A pair: the tokenizer decides what stands around and between them.
        both = [self.tokenizer.decode(ids, clean_up_tokenization_spaces=False) for ids in texts]
        pair = self.tokenizer(*map(self._plain.defused, both), split_special_tokens=True, truncation=False)
        segments = pair.get("token_type_ids")
        longest = 2 * self._limit + 8
        return list(pair.input_ids)[:longest], None if segments is None else list(segments)[:longest]

    def _padded(self, rows: Sequence[tuple[list[int], list[int] | None]]) -> dict[str, torch.Tensor]:
        longest = max(len(ids) for ids, _ in rows)
        inputs = {
            "input_ids": [ids + [self._pad] * (longest - len(ids)) for ids, _ in rows],
            "attention_mask": [[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in rows],
        }
        if rows[0][1] is not None:
            inputs["token_type_ids"] = [(segments or []) + [0] * (longest - len(ids)) for ids, segments in rows]
        return {key: torch.tensor(value, device=self.placement.device) for key, value in inputs.items()}


def _load(name: str) -> tuple[Any, Any]:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    source, options = source_of(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        model, report = AutoModelForSequenceClassification.from_pretrained(
            source, dtype=torch.float32, output_loading_info=True, **options
        )
    except Exception as error:  # loaders raise whatever their parsers do
        raise UserError(f"reward model '{name}' cannot be loaded: {in_brief(error)}") from error
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise UserError(f"'{name}' is no reward model: it has no trained {missing}; take one made for that")
    return model, tokenizer
