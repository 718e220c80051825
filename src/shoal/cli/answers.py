"""Prints what models answered: plain characters, whatever a model writes.

print_answers(console, {"guppy": [Completion.of("7")], "smollm2": [Completion.of("8 + 7 = 15")]})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from shoal.rollout import Completion
from shoal.untrusted import printable

MOST = 20_000
"""Characters of an answer that are shown."""
NARROWEST = 20
"""Columns for answers."""


def print_answers(console: Console, answers: Mapping[str, Sequence[Completion]]) -> None:
    """Prints completions below the names of those who gave them: numbered if there are several, and without a name if
    there is one. Only a terminal gets lines that are wrapped."""
    for label, completions in answers.items():
        if len(answers) > 1:
            console.print(Text(printable(label), "bold"), soft_wrap=True)
        indent = "  " if len(answers) > 1 else ""
        if not completions:
            console.print(Text(f"{indent}(no answer)", "dim"))
        for number, completion in enumerate(completions, 1):
            mark = indent + (f"{number}. " if len(completions) > 1 else "")
            for line in _lines(console, completion, len(mark)):
                console.print(Text(mark) + line, soft_wrap=True)
                mark = " " * len(mark)


def _lines(console: Console, completion: Completion, indent: int) -> Iterator[Text]:
    """The lines of an answer, without characters that steer a terminal."""
    text = completion.text.strip()
    cut = text if len(text) <= MOST else f"{text[:MOST]}…"
    for line in cut.split("\n"):
        shown = Text(printable(line, MOST + 1))
        yield from shown.wrap(console, max(NARROWEST, console.width - indent)) if console.is_terminal else [shown]
