"""What the columns of a run's table mean, in as few lines as the width allows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

MEANINGS = {
    "reward": "mean of the node's own answers",
    "held-out": "right answers, first→now",
    "live": "own rollouts whose rewards differ",
    "given": "rollouts sent",
    "taken": "others' rollouts used, of J wanted",
    "pool": "rollouts of others, unused",
}
"""Of each column that needs it. Two fit side by side into 80 columns."""
GAP = 2


def legend(columns: Sequence[str], width: int, ascii_only: bool = False) -> list[Text]:
    """A line for some of `columns` each, all that fit side by side."""
    entries = [(name, MEANINGS[name].replace("→", "->" if ascii_only else "→")) for name in columns if name in MEANINGS]
    for side_by_side in range(len(entries), 0, -1):
        groups = [entries[at::side_by_side] for at in range(side_by_side)]
        names = [max(len(name) for name, _ in group) for group in groups]
        wide = [GAP + max(len(text) for _, text in group) for group in groups]
        if sum(names) + sum(wide) + GAP * (side_by_side - 1) <= width or side_by_side == 1:
            break
    lines = []
    for start in range(0, len(entries), side_by_side):
        line = Text(no_wrap=True, overflow="ellipsis")
        for at, (name, text) in enumerate(entries[start : start + side_by_side]):
            line.append(" " * GAP * bool(at) + name.ljust(names[at] + GAP))
            line.append(text.ljust(wide[at] - GAP), "dim")
        line.rstrip()
        lines.append(line)
    return lines


def in_words(columns: Sequence[str]) -> str:
    """The legend as one line of a file or a pipe."""
    return "; ".join(f"{name}: {MEANINGS[name].replace('→', '->')}" for name in columns if name in MEANINGS)
