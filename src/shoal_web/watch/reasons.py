"""What reasons of refusals mean: those of `swarm.refusals.Reason`, and those of messages that are not passed on."""

from __future__ import annotations

from typing import Final

MEANINGS: Final = {
    "size": "too large",
    "malformed": "not a rollout at all",
    "version": "of a newer version of shoal",
    "swarm": "of another swarm",
    "age": "too old",
    "future": "from the future: a clock is wrong",
    "key": "sent under another key than its maker's",
    "signature": "not signed by its maker",
    "muted": "its maker is muted",
    "name taken": "another key had its maker's name first",
    "repeated": "sent before",
    "round": "of a round too far ahead",
    "quota": "its maker sends too much",
    "name": "not under its maker's name",
    "completions": "completions that no rollout has: none, empty ones, more than text",
    "length": "too many characters in a completion",
    "markers": "has markers of a chat template",
    "task": "about a task this node does not train on",
    "seed": "not its maker's own questions",
    "question": "not the question it says it is",
    "held out": "a question kept for tests",
    "quote": "quotes rollouts that this node does not have",
    "slow question": "its question takes too long to make",
    "slow task": "this node's own code for its task takes too long",
    "slow": "its answers take too long to score",
    "crash": "its answers broke the process that scores them",
    "replay": "its conversation went otherwise here",
    "environment": "the environment of its task failed here",
    "no verdict": "nobody can say whether its answers are right",
    "duplicate": "the same texts as another's",
    "secret": "without the secret of this private swarm",
}
