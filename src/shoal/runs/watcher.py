"""What hears how a run goes: a display, or nobody."""

from collections.abc import Mapping, Sequence
from typing import Any, Self


class Watcher:
    """Hears how a run goes, from `with` to its end. Each method does nothing unless a subclass says otherwise."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def say(self, text: str) -> None:
        """A line that stays."""

    def status(self, text: str) -> None:
        """What is being done now; empty if that is over."""

    def note(self, text: str) -> None:
        """A remark on the current round; an empty text clears it. What is wrong with the run goes to `warn`."""

    def update(self, rows: Sequence[Mapping[str, Any]], round: int) -> None:
        """The metrics of a round, one row for each node."""

    def example(self, row: Mapping[str, Any]) -> None:
        """A question of the round and a node's answer, as a row of the rollouts."""

    def warn(self, text: str) -> None:
        """What is wrong with the run: a line, or a line and examples below it. It is not to be missed."""

    def panel(self, lines: Sequence[str]) -> None:
        """The state of the swarm, in a few lines."""
