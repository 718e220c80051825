r"""The usual forms of answers, right ones and wrong ones, which show what a scorer gives to a model's answers.

    for said in forms_of(Case("What is 7 + 7?", ["14"], "number"), "15"):
        said.name, said.text, said.expected           # ("boxed", "\\boxed{14}", 1.0), ("other sign", "-14", 0.0), ...

A form is left out where it makes no sense for an answer, or where a person could not say whether it is right.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from shoal.answers.choice import options_in
from shoal.answers.number import Number, number, numbers_in, plain, same, shortest, whole_number
from shoal.answers.place import bare, place
from shoal.config.answer_form import extract, in_form, is_pattern
from shoal.rollout import canonical

RIGHT: Final = {
    "bare": "{right}",
    "behind thoughts": "<think>Is it {other}?</think>\n{right}",
    "boxed": "\\boxed{{{right}}}",
    "in tags": "<answer>{right}</answer>",
    "in a sentence": "The answer is {right}.",
    "bold": "**{right}**",
    "behind Answer:": "Answer: {right}",
    "behind ####": "These are the steps.\n#### {right}",
    "with a full stop": "{right}.",
}
WRONG: Final = {
    "nothing": "",
    "the question": "{question}",
    "another answer": "{other}",
    "right in thoughts only": "<think>It is {right}.</think>\n{other}",
    "another, in a sentence": "The answer is {other}.",
    "two answers": "{both}",
}
ANY: Final = ("bare", "behind thoughts", "nothing", "the question", "another answer", "right in thoughts only")
"""Forms of any text. The others are for short ones without marks."""
SURE: Final = ANY[:4]
"""Forms whose verdict is certain whatever the task is."""
MOST: Final = 80
"""Characters of a text that can stand in a sentence."""
PROGRAM: Final = "```python\n{}\n```"
FOR_PATTERNS: Final = ("{}", "Answer: {}", "The answer is {}", "#### {}", "<answer>{}</answer>", "\\boxed{{{}}}")
FOREIGN: Final = "Buy honey at the old mill by dusk."
SCRIPT: Final = "Мёд на старой мельнице."
"""The same in another script. No question has these words."""
THOUGHTS: Final = "in thoughts"


class Case(NamedTuple):
    """A question with its right answers."""

    question: str
    rights: Sequence[str]
    kind: str
    """Of a data set's scoring; empty: of another task."""
    comma: bool = False
    """Whether a comma stands before decimals."""
    form: str = "whole"
    """In which the task wants answers (`config.answer_form`)."""

    def number(self, text: str) -> Number | None:
        return number(text, self.comma) if self.kind == "number" else whole_number(text, self.comma)


class Said(NamedTuple):
    """An answer in some form."""

    name: str
    text: str
    expected: float
    certain: bool
    """Whether the scorer is wrong if it gives something else."""


def marked(answer: str, form: str) -> str:
    """A completion that gives an answer in the form that a task wants, also where that is a pattern."""
    if not is_pattern(form):
        return in_form(answer, form)
    tried = (text.format(answer) for text in FOR_PATTERNS)
    return next((text for text in tried if extract(text, form) == answer.strip()), answer)


def differs(case: Case, answer: str) -> bool:
    """Whether an answer is of the same kind as those that are right, and another one."""
    found = case.number(answer)
    if case.kind == "number" and not found:
        return False
    wanted = [(case.number(right), _folded(right)) for right in case.rights]
    return not any(same(value, found) if value and found else text == _folded(answer) for value, text in wanted)


def forms_of(case: Case, other: str) -> Iterator[Said]:
    """The forms of the first right answer and of wrong ones. `other`: the right answer to another question, which
    `differs`; empty: none is known."""
    right, kind, form = case.rights[0], case.kind, case.form
    programs, value = kind == "code", case.number(right)
    usual = bool(kind) and not programs and not is_pattern(form) and form != "last_number"
    options = options_in(case.question) if kind == "choice" else {}
    wrong = (
        {"off by one": value.value + 1, "other sign": -value.value} if value and kind not in ("text", "exact") else {}
    )
    numbers = {name: shortest(one).replace(".", "," if case.comma else ".") for name, one in wrong.items()}
    other = other or next(filter(lambda text: differs(case, text), [*numbers.values(), *options]), "")
    easy = kind in ("number", "choice") or (_is_plain(right, kind) and _is_plain(other, kind))
    texts = {name: PROGRAM.format(text) if programs else text for name, text in (("right", right), ("other", other))}
    texts = {name: marked(text, form) for name, text in (*texts.items(), ("both", f"{right} or {other}"))}
    texts["question"] = case.question
    for name, template in (RIGHT | WRONG).items():
        known = other or not ("{other}" in template or "{both}" in template)
        if known and (easy or name in ANY) and not (name == "the question" and _is_named(case)):
            yield Said(name, template.format(**texts), float(name in RIGHT), usual or name in SURE)
    more = {name: (text, 0.0) for name, text in numbers.items() if differs(case, text)}
    if kind == "number" and right[-1:].isdigit():
        more["with a unit"] = f"{right} kg", 1.0
    if right in options:
        more["with its text"] = f"{right}) {options[right]}", 1.0
    if programs:
        more |= {"without a block": (right, 1.0), "in a text": (f"It is:\n\n{texts['right']}\n\nThat is all.", 1.0)}
    yield from (Said(name, marked(text, form), expected, usual or programs) for name, (text, expected) in more.items())


def with_foreign(case: Case) -> dict[str, str]:
    """The first right answer with foreign text, by where that stands: what a scorer lets through (its slack), a hostile
    node can teach by it."""
    right, form = case.rights[0], case.form
    programs = case.kind == "code"
    whole = PROGRAM.format(right) if programs else marked(right, form)
    said = {
        "before": f"{FOREIGN}\n{whole}",
        "after": f"{whole}\n{FOREIGN}",
        THOUGHTS: f"<think>{FOREIGN}</think>\n{whole}",
        "in another script": f"{whole}\n{SCRIPT}",
    }
    if programs:
        return said | {"in a comment": PROGRAM.format(f"{right}\n# {FOREIGN}")}
    said["in the same line"] = f"{whole} {FOREIGN}"
    for where, text in {"in tags before": f"{FOREIGN} {right}", "in tags after": f"{right} {FOREIGN}"}.items():
        said[where] = marked(text, form) if is_pattern(form) else in_form(text, form if form == "boxed" else "tag")
    return said


def _folded(text: str) -> str:
    return canonical(bare(text)).casefold()


def _is_plain(text: str, kind: str) -> bool:
    """Whether a text can stand in a sentence, in a box and between tags as it is."""
    where = place(text)
    marks = set("\n<>|$" if kind == "math" else "\n<>|$\\{}") & set(text)
    short = len(text) <= MOST and kind != "code" and not marks
    return not text or (short and where is not None and where.how == "whole" and bare(text) == text)


def _is_named(case: Case) -> bool:
    """Whether a question names its right answer, so that who repeats it may be right by chance."""
    wanted = case.number(case.rights[0])
    found = numbers_in(plain(case.question), case.comma) if wanted and case.kind else []
    named = case.kind in ("text", "exact", "math") and case.rights[0].casefold() in case.question.casefold()
    return named or any(wanted and one.number and same(one.number, wanted) for one in found)
