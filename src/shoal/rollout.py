"""The plain data that everything else speaks of: questions, completions and rollouts.

    question   = Question(QuestionId("chain_sum", "1", "c0ffee", seed=7, index=0), (Message("user", "2 + 2 ="),))
    completion = Completion.of("4", "stop")
    rollout    = Rollout(question.id, question.hash, (completion,), node="ada", round=3)
    assert Rollout.decode(rollout.encode()) == rollout

A **rollout** is one question with the group of completions that one node gave it: the unit of sharing, and of the
I (own) and J (peers') of swarm sampling. It carries text, never tokens, rewards or weights: a receiver makes those
itself.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

SCHEMA_VERSION = 2
"""The newest. A rollout has the oldest that can say what it says (`Rollout.public`). The next is 4: older programs know
a version 3."""
MAX_TURNS = 32
"""Turns of the policy in one conversation, at most."""

Answer = str | tuple[str, ...]
"""What a verifier gets: a text, or the policy's turns in a conversation with an environment."""


def text_of(answer: Answer) -> str:
    """An answer as one text: each turn of a conversation is a line, or more."""
    return answer if isinstance(answer, str) else "\n".join(answer)


class FinishReason(StrEnum):
    """How a completion ended."""

    stop = "stop"
    """The policy ended it by its own end-of-sequence token."""
    length = "length"
    """It was cut at the longest length allowed."""


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of content: one turn of the policy where an environment answers back. Text today; another modality is
    another `mime` with its bytes in `data`."""

    text: str = ""
    mime: str = "text/plain"
    data: bytes = b""


class Message(msgspec.Struct, frozen=True):
    """One turn of a chat: its `role` is "system", "user" or "assistant"."""

    role: str
    content: str


class Picture(msgspec.Struct, frozen=True, weakref=True):
    """What a question shows. It is drawn from the question's identity on every node, and never sent.

    Picture(1, 2, bytes([255, 0, 0, 0, 0, 255]))    # a red pixel above a blue one

    Raises `ValueError` for another number of bytes than 3 * width * height."""

    width: int
    height: int
    rgb: bytes
    """Red, green and blue of each pixel, by rows from the top left."""

    def __post_init__(self) -> None:
        if min(self.width, self.height) < 1 or len(self.rgb) != 3 * self.width * self.height:
            raise ValueError(f"{len(self.rgb)} bytes are no picture of {self.width} x {self.height} pixels")

    @property
    def hash(self) -> str:
        return hash_of((self.width, self.height, self.rgb))


class QuestionId(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """All that is needed to make a question again, anywhere."""

    task: str
    version: str
    """Version of the generator: another one may make another question of the same numbers."""
    config: str
    """Hash of the task's parameters (`hash_of`)."""
    seed: int
    """In [0, 2**63): a hash (`seed_of`), since generators use seed + index, so that near seeds overlap."""
    index: int


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """One prompt with the means to verify an answer to it: its id."""

    id: QuestionId
    prompt: tuple[Message, ...]
    examples: tuple[Message, ...] = ()
    """Other questions with their right answers, in turns: they show in which form to answer."""
    pictures: tuple[Picture, ...] = ()
    """What the user shows before the text."""
    turns: int = 1
    """The most turns of the policy. More than 1: an environment answers back."""

    @property
    def asking(self) -> tuple[Message, ...]:
        """What a policy reads before the question: the system prompt and the examples."""
        return (*(message for message in self.prompt if message.role == "system"), *self.examples)

    @property
    def chat(self) -> tuple[Message, ...]:
        """What a policy reads: the system prompt, the examples, the question."""
        return (*self.asking, *(message for message in self.prompt if message.role != "system"))

    @property
    def text(self) -> str:
        """What the user asks, without the system prompt and the examples."""
        return "\n".join(message.content for message in self.prompt if message.role == "user")

    @property
    def shown(self) -> str:
        """What tables and people get of it: the text, with a mark for each picture before it."""
        return "".join(f"[picture {picture.hash[:8]}] " for picture in self.pictures) + self.text

    @property
    def content(self) -> str:
        """What makes two questions the same: the text with its white space folded, and the hashes of the pictures."""
        return " ".join([canonical(self.text), *(picture.hash for picture in self.pictures)])

    @property
    def hash(self) -> str:
        """Hash of the content, by which a receiver knows that it made the same question."""
        return hash_of(self.content)


class Completion(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer."""

    parts: tuple[Part, ...]
    finish_reason: FinishReason = FinishReason.stop
    token_ids: tuple[int, ...] | None = None
    """The tokens as they were sampled, end-of-sequence included. Known to the node that made it; never shared."""
    logprobs: tuple[float, ...] | None = None
    """Log-probability (nats) of each of those tokens when it was sampled. Known to the node that made it; never shared.
    """
    observations: tuple[str, ...] = ()
    """What the environment answered to each turn, by this node's own replay; never shared. The last turn may have
    none."""

    @classmethod
    def of(cls, text: str, finish_reason: FinishReason | str = FinishReason.stop) -> Completion:
        """A completion of text alone."""
        return cls((Part(text),), FinishReason(finish_reason))

    @property
    def text(self) -> str:
        """All that the policy says. Each turn of a conversation is a line once its observations are known; before that,
        turns are joined without a break."""
        return ("\n" if self.observations else "").join(part.text for part in self.parts)

    @property
    def answer(self) -> Answer:
        """What a verifier gets."""
        return self.parts[0].text if len(self.parts) == 1 else tuple(part.text for part in self.parts)

    @property
    def turns(self) -> tuple[str, ...]:
        """The policy's turns in a conversation."""
        return tuple(part.text for part in self.parts)


class Rollout(msgspec.Struct, frozen=True):
    """One question with the group of completions that one node gave it."""

    question: QuestionId
    question_hash: str
    completions: tuple[Completion, ...]
    node: str
    round: int
    """The round of the node that made it. Rounds of different nodes are not comparable."""
    slot: int = 0
    """The number of the question in that round. The maker's key, the round and the slot determine the question."""
    schema_version: int = 1

    def encode(self) -> bytes:
        """The public rollout as MessagePack."""
        return _encoder.encode(self.public())

    def public(self) -> Rollout:
        """The rollout as other nodes get it: the policy's text alone. It is of the lowest version that can say it, so
        that older programs read it: 2 for several turns, otherwise 1."""
        completions = tuple(
            msgspec.structs.replace(c, token_ids=None, logprobs=None, observations=()) for c in self.completions
        )
        version = 1 + any(len(c.parts) > 1 for c in completions)
        return msgspec.structs.replace(self, completions=completions, schema_version=version)

    def first(self, n: int) -> Rollout:
        """The rollout with its first `n` completions alone: a receiver scores and trains on no more than its own G."""
        return self if len(self.completions) <= n else msgspec.structs.replace(self, completions=self.completions[:n])

    @staticmethod
    def decode(data: bytes) -> Rollout:
        """The rollout in `data`, strictly typed. Raises `msgspec.MsgspecError` if it is not one.

        A rollout with `token_ids` or `observations` is refused: a learner would train on those instead of the text.
        """
        rollout = _decoder.decode(data)
        if any(c.token_ids is not None or c.observations for c in rollout.completions):
            raise msgspec.ValidationError("token_ids and observations are never shared")
        return rollout


class Scored(msgspec.Struct, frozen=True):
    """A rollout with its question regenerated and the rewards that *this* node gave to its completions."""

    rollout: Rollout
    question: Question
    rewards: tuple[float, ...]
    """Rewards, one for each completion, by this node's own verifier."""
    from_peer: bool = False
    """Whether another node made it, so that its text was not drawn from this node's policy."""
    newcomer: bool = False
    """Whether admission counts its maker as a newcomer. In one process nobody is one."""
    baseline: float | None = None
    """What its rewards are compared with, where that is not their own mean."""
    weight: float = 1.0
    """A selection's factor for its advantages, at least 0."""
    shortened: float | None = None
    """The share of the characters of its right answers that this node took out (`selection.shorten`)."""

    @property
    def has_signal(self) -> bool:
        """Whether there is something to learn from it: rewards that differ from each other, or from the baseline."""
        return self.live if self.baseline is None else any(abs(r - self.baseline) > 1e-6 for r in self.rewards)

    @property
    def live(self) -> bool:
        """Whether the rewards differ, so that the group carries a gradient."""
        return max(self.rewards) - min(self.rewards) > 1e-6

    @property
    def may_teach(self) -> bool:
        """Whether somebody may learn from it: it is live, or a group of one, which a receiver compares with itself."""
        return self.live or len(self.rewards) == 1

    @property
    def mean_reward(self) -> float:
        return sum(self.rewards) / len(self.rewards)

    def as_peer(self) -> Scored:
        """A copy marked as a peer's."""
        return msgspec.structs.replace(self, from_peer=True)


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(Rollout)


def canonical(text: str) -> str:
    """`text` with its Unicode composed and its white space folded: what makes two questions the same."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def hash_of(value: Any) -> str:
    """A 128-bit hash (hex) of plain data: the same for equal data on every machine."""
    return hashlib.blake2b(msgspec.json.encode(value, order="sorted"), digest_size=16).hexdigest()


def seed_of(*parts: Sequence[Any] | str | int) -> int:
    """A seed in [0, 2**63) that depends on all of `parts` and shares nothing with that of any others."""
    return int(hash_of(parts)[:16], 16) >> 1
