"""Prints what models answered: plain characters, whatever a model writes.

print_answers(console, {"guppy": [Completion.of("7")], "smollm2": [Completion.of("8 + 7 = 15")]})
"""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from shoal.display.text import print_paragraph
from shoal.rollout import Completion
from shoal.runs.transcripts import Pair
from shoal.untrusted import printable

MOST = 20_000
"""Characters of an answer that are shown."""


def print_answers(console: Console, answers: Mapping[str, Sequence[Completion]]) -> None:
    """Prints completions below the names of those who gave them: numbered if there are several, and without a name if
    there is one. Only a terminal gets lines that are wrapped."""
    for label, completions in answers.items():
        indent = ""
        if len(answers) > 1:
            console.print(Text(printable(label), "bold"), soft_wrap=True)
            indent = "  "
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
BESIDE = 19
"""Columns before an answer."""


def print_pairs(console: Console, node: str, pairs: Sequence[Pair], most: int = 2) -> None:
    """Prints the first `most` of `pairs`, whether they turned out well or not, and how many of all are right."""
    if not pairs:
        return
    before, after = sum(pair.before.right for pair in pairs), sum(pair.after.right for pair in pairs)
    console.print(Text(f"\nheld-out questions before and after ({printable(node, 40)}):"))
    for pair in pairs[:most]:
        print_paragraph(console, f"  {printable(pair.question, QUESTION)}")
        for when, answer in (("before", pair.before), ("after", pair.after)):
            said = told(answer.completion, answer.conversation)
            print_paragraph(console, answer_line(f"    {when:6}", said, answer.right), BESIDE)
    others = "" if len(pairs) <= most else f", {most} of them above"
    of = "the one such question" if len(pairs) == 1 else f"{len(pairs)} such questions{others}"
    console.print(Text(f"  right of {of}: {before} before, {after} after\n"))


def told(completion: str, conversation: Sequence[tuple[str, str]]) -> str:
    """An answer, or the turns of a conversation, each with what the environment answered."""
    if not conversation:
        return completion
    return ", ".join(f"{turn.strip()} ({heard.strip()})" if heard else turn.strip() for turn, heard in conversation)


def answer_line(head: str, answer: str, right: bool) -> Text:
    """An answer as plain characters on one line, and whether it is right."""
    mark = ("right", "green") if right else ("wrong", "red")
    return Text.assemble(f"{head}  ", mark, f"  {printable(answer.strip(), ANSWER) or '(nothing)'}")
