"""A reward of your own: a function as TRL's trainers take it.

    shoal run --reward own_reward:brief                  # in this folder
    python own_reward.py

It gets `prompts`, `completions` and, by name, what the task knows ("answer", "question", "metadata"), and returns a
number for each completion. It runs in a process of its own. Several rewards with weights stand in a TOML file, as
`[[rewards]]`: docs/guides/rewards.md.
"""

from __future__ import annotations

from typing import Any

import shoal


def brief(completions: list[Any], **columns: Any) -> list[float]:
    """1 for an answer of one character, less for longer ones. Completions are chats: lists of messages."""
    return [1 / max(1, len(completion[-1]["content"].strip())) for completion in completions]


if __name__ == "__main__":
    result = shoal.run(reward="own_reward:brief", nodes=2, rounds=20, progress=True)
    print(result.metrics.groupby("round")["reward/local"].mean())
