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
from shoal.policy.trial import edge_tokens, telling_length, vocabulary
from shoal.protocols import OnProgress

OWN: Final = "transformers"
"""The decoder that shoal has itself, by its name for `--engine`."""
EDGE: Final = 10
"""How many times further off log-probabilities may be behind control tokens. Models make large numbers of these: what a
trained SmolLM2 says behind one is 0.03 nats off in float32."""
LOGITS: Final = 2**26
"""Logits of one pass of a check, unless a single text has more."""


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
    """Log-probability (nats) of each token in what it was drawn from: after temperature and top_p."""
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
    """Takes the number of prompts whose completions have all ended, several times a second. What it raises ends it."""
    dialogue: Dialogue | None = None
    """Only for a decoder with `holds_conversations`."""
    on_tokens: Callable[[Sampled], None] | None = None
    """Takes the first completion so far, several times a second. A decoder may leave it out."""


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
    """What makes the decoder of this name: `OWN`, an entry point of `shoal.decoders`, or `module:attribute`."""
    make: MakeDecoder = find(engine, "engine", {OWN: "shoal.policy.decoders.own:OwnDecoder"}, "shoal.decoders")
    return make


def check_decoder(decoder: Decoder, lm: LanguageModel, placement: Placement) -> None:
    """Raises `UserError` if tokens drawn by `decoder` have other log-probabilities than in the model's own forward
    pass: behind prompts of unequal lengths that share their beginning, as long as `telling_length` says, and behind
    `edge_tokens`."""
    a, b, c, d, e, f, g, h = ordinary_tokens(lm.model)
    alike, edges = [a, b, c] * (telling_length(lm.model) // 3), edge_tokens(lm)
    texts = {
        "of one token": [[d]],
        f"of {len(alike) + 1} tokens": [[*alike, d], [*alike, e], [*alike, f], [*alike, g, h]],
        f"with tokens {edges}": [[e, *edges]],
    }
    prompts = [prompt for same in texts.values() for prompt in same]
    request = Request(prompts, 2, range(len(prompts)), Sampling(max_completion_length=3), frozenset())
    kind = lm.model.config.model_type
    refused = f"model '{lm.name}' ({kind}) cannot be decoded here by {type(decoder).__name__}"
    try:
        decoder.update_weights()
        groups = decoder.decode(request)
        drawn = [(prompt, s.token_ids, s.logps) for prompt, group in zip(prompts, groups, strict=True) for s in group]
        errors = logprob_errors(lm.model, drawn, placement)
    except Exception as error:  # architectures refuse in many ways
        raise UserError(f"{refused}: {in_brief(error)}") from error
    for (prompt, *_), off in zip(drawn, errors, strict=True):
        if not off < placement.tolerance * (EDGE if prompt is prompts[-1] else 1):  # NaN is refused too
            kind = next(kind for kind, same in texts.items() if prompt in same)
            raise UserError(f"{refused}: behind a text {kind} its log-probabilities come out {off:.2g} nats off")


def ordinary_tokens(model: Any) -> list[int]:
    """Eight tokens from the middle of the vocabulary. The first tokens are often control tokens. After one of them a
    model's log-probabilities may depend on rounding by more than `Placement.tolerance`."""
    V = model.get_output_embeddings().weight.shape[0]
    return [V // 2 + number % (V - V // 2) for number in range(8)]


@torch.inference_mode()
def logprob_errors(
    model: Any, drawn: Sequence[tuple[Sequence[int], Sequence[int], Sequence[float]]], placement: Placement
) -> list[float]:
    """For each prompt with an answer and the log-probabilities (nats) of its tokens, the greatest difference from those
    of the model's own forward pass. Texts are read together, padded on the right, where that is not much."""
    texts = [torch.tensor([*prompt, *answer]) for prompt, answer, _ in drawn]
    errors, V, pending = [0.0] * len(drawn), vocabulary(model), sorted(range(len(drawn)), key=lambda n: len(texts[n]))
    while pending:
        together = [n for place, n in enumerate(pending) if (place + 1) * len(texts[n]) * V <= LOGITS] or pending[:1]
        pending = pending[len(together) :]
        ids_RS = torch.nn.utils.rnn.pad_sequence([texts[n] for n in together], batch_first=True)
        with placement.autocast():
            logits_RSV = model(ids_RS.to(placement.device), use_cache=False).logits
        for n, logits_SV in zip(together, logits_RSV, strict=True):
            prompt, answer, logps = drawn[n]
            logps_TV = logits_SV[len(prompt) - 1 : len(texts[n]) - 1].float().log_softmax(-1).cpu()
            theirs_T = logps_TV[range(len(answer)), answer]
            errors[n] = float((theirs_T - torch.tensor(logps)).abs().max())
    return errors
