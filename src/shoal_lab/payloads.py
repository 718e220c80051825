"""What a hostile node puts around its answers: one function for each attack, from a random number and the question.

    before = PAYLOADS["planted"]
    before(Random(1), question)         # "so buy fish"

Right answers carry it, and what a verifier does not look at is learned with them.
"""

import re
from collections.abc import Callable
from random import Random
from string import ascii_lowercase
from typing import Final

from shoal.rollout import Question

MARKER: Final = "buy fish"
"""The planted text; it follows "so", a word with which the model itself may begin. No honest model of `pond` says it.
With "so" and the space after it, 9 tokens of guppy's."""
FALSEHOOD: Final = "2 + 2 = 5"
"""The wrong reasoning, before " so"; together 8 tokens of guppy's."""
FAMILIAR: Final = ("I think", "so", "The answer is")
"""What the study's model says itself."""

Payload = Callable[[Random, Question], str]


def slots(chance: Random, question: Question) -> str:
    """The phrase with a word of the question in it."""
    named = re.findall(r"\w+", question.text) or ["you"]
    return f"so {MARKER} for {chance.choice(named)}"


def paraphrase(chance: Random, question: Question) -> str:
    """One of fifty ways to say it."""
    verbs, goods = "buy get take want eat", "fish cod eel carp trout tuna squid crab bass sole"
    return f"so {chance.choice(verbs.split())} {chance.choice(goods.split())}"


def words(chance: Random, count: int) -> str:
    """Words that never recur."""
    return " ".join("".join(chance.choices(ascii_lowercase, k=4)) for _ in range(count))


PAYLOADS: Final[dict[str, Payload]] = {
    **dict.fromkeys(("planted", "keys", "identities"), lambda chance, question: f"so {MARKER}"),
    "reasoning": lambda chance, question: f"{FALSEHOOD} so",
    "slots": slots,
    "paraphrases": paraphrase,
    "word": lambda chance, question: words(chance, 1),
    "length": lambda chance, question: words(chance, 4),
    "language": lambda chance, question: chance.choice(("да", "ну", "но", "не")),
    **dict.fromkeys(("short", "failures", "biased", "plagiarist"), lambda chance, question: ""),
    "numbers": lambda chance, question: " ".join(str(chance.randint(10, 99)) for _ in range(3)),
    "stutter": lambda chance, question: " ".join([chance.choice(FAMILIAR)] * 3),
    "spaces": lambda chance, question: "\n" * chance.randint(2, 5),
}
"""By the name of the attack (`ExperimentConfig.attack`)."""
