"""An environment of your own: it answers each turn of the policy, and scores the conversation.

    shoal run --task own_environment:Lock --partial-credit true --max-completion-length 4      # in this folder
    python own_environment.py

One object holds one conversation. All that it says depends on the seed and on the turns so far, since every receiver
holds the conversation again with its own. In these thirty rounds guppy learns to try two digits; a model that listens
opens every lock.
"""

from __future__ import annotations

from random import Random

import shoal


class Lock:
    """A lock of two digits says, after each try, how many are right where they stand."""

    name = "lock"
    version = "1"  # change it whenever the environment answers otherwise
    max_turns = 5  # of the policy; a conversation may end before

    def __init__(self, digits: int = 2) -> None:
        """`digits`: a parameter that a configuration can set (`parameters = { digits = 3 }`)."""
        self.digits, self.best = digits, 0.0

    def begin(self, seed: int) -> str:
        """The first words: the question. `seed` stands for it."""
        random = Random(seed)
        self.code = [str(random.randint(0, 9)) for _ in range(self.digits)]
        return f"Lock {seed % 1000}: which {self.digits} digits open it? "

    def answer(self, turn: str) -> tuple[str, bool]:
        """What it says to a turn, and whether the conversation has ended. A stranger may have written the turn."""
        tried = turn.strip()
        if not (tried.isascii() and tried.isdecimal() and len(tried) == self.digits):
            return f"{self.digits} digits, please. ", False
        right = sum(a == b for a, b in zip(tried, self.code, strict=True))
        self.best = max(self.best, (1 + right) / (1 + self.digits))
        return f"{right} right. ", right == self.digits

    def score(self) -> float:
        """The reward in [0, 1], at any time: a conversation may be cut short."""
        return self.best


if __name__ == "__main__":
    result = shoal.run(
        task="own_environment:Lock", partial_credit=True, nodes=2, rounds=30, max_completion_length=4, progress=True
    )
    print(result.metrics.groupby("round")["reward/local"].mean())
