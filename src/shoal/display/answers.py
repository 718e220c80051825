"""Prints what models answered: plain characters, whatever a model writes.

print_answers(console, "smollm2", [Completion.of("8 + 7 = 15")])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from shoal.display.text import clip, print_paragraph
from shoal.rollout import Completion
from shoal.untrusted import printable

if TYPE_CHECKING:
    from shoal.runs.transcripts import Pair  # pyarrow

MOST = 20_000
"""Characters of an answer that are shown."""


def print_answers(console: Console, label: str, completions: Sequence[Completion]) -> None:
    """Prints completions, numbered if there are several, below the name of who gave them unless that is "". Only a
    terminal gets lines that are wrapped."""
    indent = "  " if label else ""
    if label:
        console.print(Text(printable(label), "bold"), soft_wrap=True)
    if not completions:
        console.print(Text(f"{indent}(no answer)", "dim"))
    for number, completion in enumerate(completions, 1):
        mark = indent + (f"{number}. " if len(completions) > 1 else "")
        text = completion.text.strip()
        for line in (text if len(text) <= MOST else f"{text[:MOST]}…").split("\n"):
            print_paragraph(console, mark + printable(line, MOST + 1), len(mark))
            mark = " " * len(mark)


QUESTION, ANSWER = 300, 160
"""Characters that are shown."""
ASKED, LEAST = 150, 40
"""Columns of a question among several, and of an answer to it where a terminal is narrow. Others fit the line."""
BESIDE = 19
"""Columns before an answer."""
TURNS = [(False, True), (True, False), (False, False), (True, True)]
"""Whether a question was right before and after, in the order in which they are shown."""


def print_pairs(console: Console, node: str, pairs: Sequence[Pair], most: int = 5) -> None:
    """Prints at most `most` of `pairs`: what became right, then what became wrong, then others. Two are left for these
    where many became right. A line above says how many there are of all."""
    if not pairs:
        return

    def turn(pair: Pair) -> int:
        return TURNS.index((pair.before.right, pair.after.right))

    ordered = sorted(pairs, key=turn)
    better, worse = (sum(turn(pair) == kind for pair in pairs) for kind in (0, 1))
    first = min(better, most - 2)
    shown = sorted((ordered[:first] + ordered[better:] + ordered[first:better])[:most], key=turn)
    counts = f"{better} became right, {worse} became wrong ({printable(node, 40)})"
    print_paragraph(console, f"of {len(pairs)} question{'s' * (len(pairs) != 1)} that it never practised {counts}:")
    for pair in shown:
        print_paragraph(console, f"  {clip(pair.question, ASKED)}", 4)
        for when, answer in (("before", pair.before), ("after", pair.after)):
            said = clip(told(answer.completion, answer.conversation), max(LEAST, console.width - BESIDE))
            print_paragraph(console, answer_line(f"    {when:6}", said, answer.right), BESIDE)
    console.print()


def told(completion: str, conversation: Sequence[tuple[str, str]]) -> str:
    """An answer, or the turns of a conversation, each with what the environment answered."""
    if not conversation:
        return completion
    return ", ".join(f"{turn.strip()} ({heard.strip()})" if heard else turn.strip() for turn, heard in conversation)


def answer_line(head: str, answer: str, right: bool) -> Text:
    """An answer as plain characters on one line, and whether it is right."""
    mark = ("right", "green") if right else ("wrong", "red")
    return Text.assemble(f"{head}  ", mark, f"  {printable(answer.strip(), ANSWER) or '(nothing)'}")
