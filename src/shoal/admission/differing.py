"""Peers that ask other questions under the same name: another copy of a data set, another version of a task.

    differing = Differing([("gsm8k", "3f2a...", "c0ffee...")])     # own tasks: name, version, hash of the parameters
    differing.note(QuestionId("gsm8k", "9b1c...", ...), "swift-otter")
    differing.line      # "swift-otter has another 'gsm8k', which is refused: 9b1c... there, 3f2a... here"

Their rollouts are refused: a question is looked up here, never taken from a peer. What peers say of their tasks is
their word: it is compared, and shown in a few characters.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from shoal.rollout import QuestionId
from shoal.untrusted import printable

MOST: Final = 64
"""Peers that are remembered."""
SHOWN: Final = 12
"""Characters of a version."""


class Differing:
    """Remembers what other tasks peers have. Thread-safe."""

    def __init__(self, own: Iterable[tuple[str, str, str]] = ()) -> None:
        """`own`: (name, version, hash of the parameters) of each task, as in the ids of its questions."""
        self._own = list(own)
        self._seen: dict[str, str] = {}
        self._lock = threading.Lock()

    def note(self, question: QuestionId, peer: str) -> None:
        """Takes a question that this node does not have, of `peer`."""
        said = self._said(question)
        with self._lock:
            if said and len(self._seen) < MOST:
                self._seen.setdefault(peer, said)

    @property
    def line(self) -> str:
        """What the first such peer has, and how many others there are; empty if there is none."""
        with self._lock:
            if not self._seen:
                return ""
            peer, said = next(iter(self._seen.items()))
            others = len(self._seen) - 1
        more = f" (so do {others} other peers)" if others > 1 else " (so does another peer)" if others else ""
        return f"{peer} {said}{more}"

    def _said(self, question: QuestionId) -> str:
        """How the question's task differs from this node's; empty if it resembles none."""
        for name, version, config in self._own:
            if question.task == name and question.version != version:
                return (
                    f"has another {name!r}, which is refused: {printable(question.version[:SHOWN])} there, "
                    f"{version[:SHOWN]} here"
                )
            if question.task == name and question.config != config:
                return f"asks {name!r} in another way, which is refused: compare parameters, examples, answer and score"
            if question.task != name and question.version == version and question.config == config:
                theirs = printable(question.task, 64)
                return f"calls your {name!r} by another name, and is refused: give it the name {theirs!r}"
        return ""
