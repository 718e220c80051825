"""transformers' own `generate`, for models whose attention shoal cannot replace, such as recurrent ones. It is slower:
prompts are decoded one by one, and completions that have ended are computed on until the last one of their prompt ends.

Shape suffixes: G completions of a prompt, V vocabulary, B those that are living.
"""

from functools import partial
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteriaList

from shoal.errors import UserError, say_once
from shoal.policy.decoders.base import Decoder, Dialogue, MakeDecoder, Request, Sampled, check_decoder
from shoal.policy.decoders.draw import draw
from shoal.policy.decoders.own import OwnDecoder, chances
from shoal.policy.decoders.turns import Conversations
from shoal.policy.device import Placement
from shoal.policy.loading import LanguageModel
from shoal.policy.products import cast_once
from shoal.policy.verdicts import remembered


def fitting_decoder(lm: LanguageModel, placement: Placement) -> Decoder:
    """The fastest decoder that is right for `lm`; a line on standard error says if it is slow. Only shoal's own shows
    pictures. Raises `UserError` if none is right."""
    makers: list[MakeDecoder] = [OwnDecoder, GenerateDecoder, partial(GenerateDecoder, use_cache=False)]

    def tried() -> tuple[int, str]:
        refused: list[UserError] = []
        for number, make in enumerate(makers[: 1 if lm.vision else None]):
            try:
                check_decoder(make(lm, placement), lm, placement)
            except UserError as error:
                refused.append(error)
            else:
                return number, str(refused[0]) if refused else ""
        raise refused[-1]

    number, reason = remembered("decoder", lm, placement, tried)
    if reason:
        say_once(f"{reason}; transformers' own passes decode and train it instead, which is slower")
    return makers[number](lm, placement)


class GenerateDecoder:
    """Decodes with the weights that are trained, where they are."""

    context = None
    holds_conversations = True

    def __init__(self, lm: LanguageModel, placement: Placement, use_cache: bool = True) -> None:
        """`use_cache`: False: the whole text is read again for each token."""
        self.lm, self.placement, self.use_cache = lm, placement, use_cache

    def update_weights(self) -> None:
        """Nothing to do."""

    @torch.no_grad()
    def decode(self, request: Request) -> list[list[Sampled]]:
        model: Any = self.lm.model
        before, found = model.generation_config, []
        model.generation_config = GenerationConfig()  # the model's own may punish repetition
        try:
            with cast_once(model, self.placement), self.placement.autocast():
                for number, prompt in enumerate(request.prompts):
                    draws = _Draws(request, number)
                    ids = torch.tensor([list(prompt)] * request.num_generations, device=self.placement.device)
                    model.generate(
                        ids,
                        attention_mask=torch.ones_like(ids),
                        generation_config=GenerationConfig(max_new_tokens=draws.longest, use_cache=self.use_cache),
                        logits_processor=LogitsProcessorList([draws]),
                        stopping_criteria=StoppingCriteriaList([draws.ended]),
                    )
                    found.append(draws.results)
        finally:
            model.generation_config = before
        return found


class _Draws(LogitsProcessor):
    """Draws each token of a prompt's completions, and leaves `generate` no other."""

    def __init__(self, request: Request, number: int) -> None:
        """`number`: of the prompt."""
        G, most = request.num_generations, request.sampling.max_completion_length
        # Without an environment, a conversation of one turn.
        dialogue = request.dialogue or Dialogue([1] * len(request.prompts), most, lambda ended: [[] for _ in ended])
        self.results, self.longest = [Sampled() for _ in range(G)], dialogue.longest
        self._request, self._number, self._living = request, number, list(range(G))
        self._talk = Conversations(dialogue, [number], G)
        self._chance_GT = chances([request.seeds[number]], G, [most * dialogue.turns[number]])

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """`scores`: the logits (G, V)."""
        rows, request = self._living, self._request
        if request.on_progress is not None:
            request.on_progress(self._number)
        only_GV = torch.full_like(scores, -torch.inf)
        only_GV[:, 0] = 0  # for completions that have ended
        if rows:  # else a GPU computes a step more
            place = self._talk.drawn(rows, self.results, self._chance_GT.shape[1])
            token_B, logp_B = draw(scores[rows], request.sampling, self._chance_GT[rows, place])
            drawn = token_B.tolist(), logp_B.tolist()
            tokens, ended = self._talk.take(rows, self.results, *drawn, request.sampling, request.stop_ids)
            only_GV[rows, 0] = -torch.inf
            only_GV[rows, tokens] = 0
            self._living = [row for row, over in zip(rows, ended, strict=True) if not over]
        return only_GV

    def ended(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Which completions have ended (G), for `generate`."""
        return torch.tensor([row not in self._living for row in range(len(input_ids))], device=input_ids.device)
