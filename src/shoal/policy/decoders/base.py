"""What a decoder is: it draws the tokens of answers, with the weights that a learner trains.

    decoder = decoder_of("transformers")(lm, placement)
    decoder.update_weights()
    [group] = decoder.decode(Request([[5, 6, 7]], 4, seeds=[1], sampling=Sampling(), stop_ids=lm.stop_ids))
    group[0].token_ids, group[0].logps

docs/extend/decoder.md has one of thirty lines.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch

from shoal.config.own_code import find
from shoal.errors import UserError, in_brief
from shoal.policy.device import Placement
from shoal.policy.loading import LanguageModel
from shoal.protocols import OnProgress

OWN: Final = "transformers"
"""The decoder that shoal has itself, by its name for `--engine`."""


@dataclass(frozen=True)
class Sampling:
    """How to draw tokens."""

    temperature: float = 1.0
    """0: always the most likely token."""
    top_p: float = 1.0
    max_completion_length: int = 256


@dataclass
class Sampled:
    """One completion as tokens; `stopped` when it ended by itself: by a stop token, or as its environment says."""

    token_ids: list[int] = field(default_factory=list)
    """The policy's own, of all turns, with the stop token."""
    logps: list[float] = field(default_factory=list)
    """Log-probability (nats) of each token under the distribution that it was drawn from: after temperature and
    top_p."""
    stopped: bool = False


@dataclass(frozen=True)
class Dialogue:
    """Conversations with environments. Each turn of the policy ends with a stop token; then the environment answers."""

    turns: Sequence[int]
    """The most turns of the policy, for each prompt."""
    longest: int
    """The most tokens behind a prompt."""
    answer: Callable[[Sequence[tuple[int, int, Sequence[int]]]], list[list[int]]]
    """Takes the number of the prompt, the number of the completion and the policy's tokens so far, of each completion
    whose turn has just ended. Returns the tokens that come next for each; none where the conversation is over."""


@dataclass(frozen=True)
class Request:
    """What to decode."""

    prompts: Sequence[Sequence[int]]
    """Token ids. Those of a picture are below 0 (`shoal.policy.pictures`)."""
    num_generations: int
    """G: completions of each prompt."""
    seeds: Sequence[int]
    """One for each prompt, in [0, 2**63): the same seed gives the same completions."""
    sampling: Sampling
    stop_ids: frozenset[int]
    """Tokens that end a completion."""
    on_progress: OnProgress | None = None
    """Takes the number of prompts whose completions have all ended, several times a second. What it raises ends the
    decoding."""
    dialogue: Dialogue | None = None
    """Only for a decoder with `holds_conversations`."""


class Decoder(Protocol):
    """Draws completions. `--engine` names what is called with a `LanguageModel` and a `Placement` and returns one."""

    @property
    def context(self) -> int | None:
        """The most tokens of a prompt with its completion, if they are fewer than the model reads."""
        ...

    @property
    def holds_conversations(self) -> bool:
        """Whether it takes a `Dialogue`."""
        ...

    def update_weights(self) -> None:
        """Takes the weights of the model as they are now. It is called before each `decode`."""
        ...

    def decode(self, request: Request) -> list[list[Sampled]]:
        """The completions of each prompt."""
        ...


MakeDecoder = Callable[[LanguageModel, Placement], Decoder]


def decoder_of(engine: str) -> MakeDecoder:
    """What makes the decoder of this name: `OWN`, one of an installed package (an entry point of `shoal.decoders`), or
    `module:attribute`. Raises `UserError`."""
    make: MakeDecoder = find(engine, "engine", {OWN: "shoal.policy.decoders.own:OwnDecoder"}, "shoal.decoders")
    return make


def check_decoder(decoder: Decoder, lm: LanguageModel, placement: Placement) -> None:
    """Raises `UserError` if tokens drawn by `decoder` have other log-probabilities than in the model's own forward
    pass."""
    a, b, c, d, e, f, g, h = ordinary_tokens(lm.model)
    alike = [a, b, c] * 8  # enough for sharing to pay
    prompts = [[*alike, d], [*alike, e], [*alike, f], [*alike, g, h], [d]]
    request = Request(prompts, 2, range(len(prompts)), Sampling(max_completion_length=3), frozenset())
    kind = lm.model.config.model_type
    refused = f"model '{lm.name}' ({kind}) cannot be decoded here by {type(decoder).__name__}"
    try:
        decoder.update_weights()
        groups = decoder.decode(request)
        worst = max(
            logprob_error(lm.model, prompt, s.token_ids, s.logps, placement)
            for prompt, group in zip(prompts, groups, strict=True)
            for s in group
        )
    except Exception as error:  # architectures refuse in many ways
        raise UserError(f"{refused}: {in_brief(error)}") from error
    if not worst < placement.tolerance:  # NaN is refused too
        raise UserError(f"{refused}: its log-probabilities come out {worst:.2g} nats off")


def ordinary_tokens(model: Any) -> list[int]:
    """Eight tokens from the middle of the vocabulary. The first tokens are often control tokens. After one of them a
    model's log-probabilities may depend on rounding by more than `Placement.tolerance`."""
    V = model.get_output_embeddings().weight.shape[0]
    return [V // 2 + number % (V - V // 2) for number in range(8)]


@torch.inference_mode()
def logprob_error(
    model: Any, prompt: list[int], token_ids: list[int], logps: Sequence[float], placement: Placement
) -> float:
    """The greatest difference in nats between `logps`, of `token_ids`, and those of a plain forward pass."""
    ids = torch.tensor([prompt + token_ids], device=placement.device)
    with placement.autocast():
        logits_TV = model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    logps_TV = logits_TV.float().log_softmax(-1).cpu()
    theirs_T = logps_TV[range(len(token_ids)), token_ids]
    return float((theirs_T - torch.tensor(logps)).abs().max())
