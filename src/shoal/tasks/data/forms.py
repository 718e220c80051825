"""Which columns of a data set are the question, its options and the right answer: the forms that are usual.

    form = form_of(spec, ["question", "choices", "answer"], rows, "quiz.jsonl")
    form.says                     # "question 'question', options 'choices', right answer 'answer'"
    form.read({"question": "Which?", "choices": ["a", "b"], "answer": 1})   # Asked("Which?\\nA) a\\nB) b", ["B"])

What cannot be told is an error that says which columns there are and what to write.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec

from shoal.answers.choice import LETTERS
from shoal.config.own_code import offered
from shoal.errors import UserError
from shoal.tasks.data.rows import Asked, Form
from shoal.tasks.data.scores import GROUP, row_score
from shoal.tasks.data.spec import DataSpec
from shoal.untrusted import UNDECODABLE, printable

PROMPTS: Final = "prompt question problem query instruction input ctx goal sentence task text frage pregunta".split()
ANSWERS: Final = (
    "final_answer answer_number answer answers solution ground_truth gold ideal answer_key reference_answer "
    "correct_answer right_answer best_answer expected_answer expected target targets label output completion response "
    "chosen result answers_spans antwort richtige_antwort lösung loesung réponse bonne_réponse respuesta "
    "respuesta_correcta"
).split()
CONTEXTS: Final = ("context", "passage", "article", "paragraph", "story", "body", "text")
"""Texts that a question is about."""
OPTIONS: Final = ("choices", "options", "endings", "answer_choices", "candidates")
PICKS: Final = "answer answer_key label answer_idx answer_index cop gold correct correct_option target".split()
CHATS: Final = ("messages", "conversations", "conversation", "chat", "dialogue")
USUAL: Final = {re.sub("_", "", name) for name in (*PROMPTS, *ANSWERS, *CONTEXTS, *OPTIONS, *PICKS, *CHATS)}
ROLES: Final = {"human": "user", "developer": "system"} | dict.fromkeys(("gpt", "chatgpt", "bot", "model"), "assistant")
"""Other names of the roles, as ShareGPT and Gemini have them."""


def form_of(spec: DataSpec, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], name: str) -> Form:
    """The form of a data set with these columns; `rows`: its first ones. Raises `UserError` if none fits."""
    has = printable(", ".join(map(str, columns)), 200) or "none"
    for kind in offered(GROUP):
        own = row_score(kind) if spec.score in ("auto", kind) else None
        form = own.form(columns) if own and not (spec.prompt or spec.answer) else None
        if form:
            return form
        if own and spec.score == kind:
            raise UserError(f"{name} has not the columns {own.columns}; it has {has}")
    for given, what in ((spec.prompt, "prompt"), (spec.context, "context"), (spec.answer, "answer")):
        if given and given not in columns and given.partition(".")[0] not in columns:
            say = f"say --data '...,{what}=COLUMN'"
            raise UserError(f"{name} has no column {given!r} for the {what}; it has {has}: {say}")
    columns = [one for one in columns if one and not re.match(r"Unnamed: \d|__index_level_", str(one))]  # pandas' own
    known = {_folded(column): column for column in reversed(columns)}
    form = _chat(spec, known, rows) or _choice(spec, known, rows) if not spec.prompt else None
    fault = f"{name} has no column for the prompt ({', '.join(PROMPTS[:4])}); it has {has}"
    form = form or _plain(spec, known, rows, fault)
    for column in (form.prompt, form.answer):
        alike = [one for one in columns if _folded(one) == _folded(column)]
        if len(alike) > 1 and column not in (spec.prompt, spec.answer):
            what, two = "answer" if column == form.answer else "prompt", printable(", ".join(map(repr, alike)), 100)
            raise UserError(f"{name} has the columns {two}: say which with --data '...,{what}=COLUMN'")
    return form


def _plain(spec: DataSpec, known: Mapping[str, str], rows: Sequence[Mapping[str, Any]], fault: str) -> Form:
    """A text in a column, perhaps with one before or behind it."""
    prompt = spec.prompt or _named(known, PROMPTS)
    answer = spec.answer or _named(known, ANSWERS, prompt)
    if len(known) == 2 and not prompt and not spec.answer:
        answer, prompt = known.values()  # the last one is first
    if not prompt and not spec.answer and "q" in known and "a" in known:
        prompt, answer = known["q"], known["a"]
    if not prompt:
        raise UserError(f"{fault}: say --data '...,prompt=COLUMN'")
    if not answer and "reward_model" in known.values():
        answer = "reward_model.ground_truth"  # as verl has it
    behind = known.get("input", "") if _folded(prompt) == "instruction" else ""  # as alpaca has it
    before = spec.context or ("" if spec.prompt else _context(known, prompt, rows))

    def read(row: Mapping[str, Any]) -> Asked:
        asked = _joined(row, before, _cell(field(row, prompt)), behind)
        return Asked(asked, _values(field(row, answer)) if answer else None)

    texts = " with ".join(repr(one) for one in (prompt, before, behind) if one)
    right = f"right answer {answer!r}" if answer else "no right answers"
    return Form(f"question {texts}, {right}", prompt, answer, read)


def field(row: Mapping[str, Any], name: str) -> Any:
    """A column, or the field in a column that a name with dots says; None if it is missing."""
    if name in row or "." not in name:
        return row.get(name)
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _joined(row: Mapping[str, Any], before: str, asked: Any, behind: str = "") -> Any:
    """A question with the texts in these columns before and behind it."""
    texts = (row.get(before) if before else None, asked, row.get(behind) if behind else None)
    if not isinstance(asked, str) or not (asked.strip() or texts[2]):
        return asked
    return "\n\n".join(one for one in texts if isinstance(one, str) and one.strip())


def _cell(value: Any) -> Any:
    """A list or an object that a table keeps as JSON in a cell; otherwise the value."""
    if isinstance(value, str) and re.match(r'[\[{]\s*[\["{]', value):
        try:
            return msgspec.json.decode(value)
        except UNDECODABLE:
            return value
    return value


def is_named(column: Any) -> bool:
    """Whether a column has a usual name."""
    return isinstance(column, str) and _folded(column) in USUAL


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]", "", str(name)).casefold()


def _named(known: Mapping[str, str], names: Sequence[str], but: str = "") -> str:
    """The first column with one of these names; empty if there is none."""
    return next((column for name in names if (column := known.get(_folded(name), but)) != but), "")


def _context(known: Mapping[str, str], prompt: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The column of texts that a question is about. A `text` with the question in it, as of Alpaca, has its answer."""
    found = _named(known, CONTEXTS, prompt)
    whole = _folded(found) == "text" and any(str(row.get(prompt) or "\0") in str(row.get(found)) for row in rows)
    return "" if whole else found


def _values(value: Any) -> Any:
    """The right answers in a column: one, a list, or an object with a list as SQuAD and TriviaQA have it."""
    if isinstance(value, Mapping):
        several = next((value[name] for name in ("text", "aliases", "spans") if name in value), None)
        if isinstance(several, list):
            return list(dict.fromkeys([*([value["value"]] if "value" in value else []), *several]))
        return value.get("value", value)
    if isinstance(value, list) and value and all(isinstance(turn, Mapping) and "content" in turn for turn in value):
        return value[-1]["content"]  # a completion as a chat of one message
    return value


def _chat(spec: DataSpec, known: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Form | None:
    """Chats, whose last message is the right answer unless there is a column of right answers."""
    column, answer = _named(known, CHATS), spec.answer or _named(known, ANSWERS)
    chats = [_turns(row.get(column)) for row in rows] if column else []
    if not any(chats):
        return None

    is_within = not answer and any(turns[-1]["role"] == "assistant" for turns in chats if turns)

    def read(row: Mapping[str, Any]) -> Asked:
        turns = _turns(row.get(column))
        is_answered = len(turns) > 1 and turns[-1]["role"] == "assistant"
        if is_within and not is_answered:
            raise ValueError(f"does not end with an answer of the assistant in {column!r}")
        right = turns[-1]["content"] if is_within else _values(field(row, answer)) if answer else None
        return Asked(turns[:-1] if is_answered else turns, right)

    right = f"right answer {answer!r}" if answer else "no right answers"
    says = f"chat {column!r}, {'right answer its last message' if is_within else right}"
    return Form(says, column, column if is_within else answer, read)


def _turns(value: Any) -> list[dict[str, Any]]:
    """Chat messages, of OpenAI's form or ShareGPT's, as role and content."""
    turns = []
    value = _cell(value)
    value = value.get("messages") if isinstance(value, Mapping) else value
    for turn in value if isinstance(value, list) else []:
        if not isinstance(turn, Mapping):
            return []
        role = turn.get("role", turn.get("from"))
        content = turn.get("content", turn.get("value"))
        if isinstance(content, list) and all(isinstance(part, Mapping) and "text" in part for part in content):
            content = "".join(str(part["text"]) for part in content)  # in parts, as OpenAI has it
        turns.append({"role": ROLES.get(str(role), role), "content": content})
    return turns


def _choice(spec: DataSpec, known: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Form | None:
    """Multiple choice: the options in a column, or in a column each."""
    column, singles = _named(known, OPTIONS), single_columns(known)
    prompt, pick = _named(known, ("question", "question_stem", *PROMPTS)), spec.answer or _named(known, PICKS)
    before = spec.context or _context(known, prompt, rows)
    cells = [row.get(prompt) for row in rows]
    if cells and all(isinstance(cell, Mapping) and {"stem", "choices"} <= cell.keys() for cell in cells):
        prompt, column = f"{prompt}.stem", f"{prompt}.choices"  # as CommonsenseQA has it
    listed = any(field(row, column) not in (None, "") for row in rows) if column else False
    if not prompt or not pick or not (listed or singles):
        return None

    def options(row: Mapping[str, Any]) -> dict[str, Any]:
        return labelled(_cell(field(row, column)) if listed else [row.get(one) for one in singles])

    picks = [(field(row, pick), options(row)) for row in rows if field(row, pick) not in (None, "")]
    by_text = all(isinstance(right, str) and right in texts.values() for right, texts in picks)
    ones = (bool(singles) and singles[0].endswith("1")) or any(str(right) == str(len(texts)) for right, texts in picks)
    first = int(ones and all(str(right) != "0" for right, _ in picks))

    def read(row: Mapping[str, Any]) -> Asked:
        texts, right, asked = options(row), field(row, pick), field(row, prompt)
        if not texts:
            raise ValueError(f"has no options in {column!r}: a list of them, in a table a list as JSON")
        label = label_of(right, texts, first, by_text)
        shown = (f"{one}) {str(text).strip()}" for one, text in texts.items() if text not in (None, ""))
        asked = _joined(row, before, asked)
        return Asked("\n".join([asked.strip(), *shown]) if isinstance(asked, str) and asked.strip() else asked, label)

    where = repr(column) if listed else ", ".join(map(repr, singles))
    asked = f"{prompt!r} with {before!r}" if before else repr(prompt)
    return Form(f"question {asked}, options {where}, right answer {pick!r}", prompt, pick, read, "choice")


def labelled(options: Any) -> dict[str, Any]:
    """The texts of options by their labels: of a list, an object of labels, ARC's lists of both, a list of objects."""
    if isinstance(options, Mapping):
        texts, labels = options.get("text"), options.get("label")
        if isinstance(texts, list):
            return dict(zip(map(str, labels) if isinstance(labels, list) else LETTERS, texts, strict=False))
        return {str(label): text for label, text in options.items() if text is not None}
    texts = options if isinstance(options, list) else []
    if texts and all(isinstance(one, Mapping) and "text" in one for one in texts):
        return {str(one.get("label", letter)): one["text"] for letter, one in zip(LETTERS, texts, strict=False)}
    lettered = [re.fullmatch(r"\(?([A-Z])[).:]\s*(.+)", str(text), re.DOTALL) for text in texts]  # as AQuA has them
    if texts and all(one and one[1] == letter for letter, one in zip(LETTERS, lettered, strict=False)):
        return {one[1]: one[2] for one in lettered if one}
    return dict(zip(LETTERS, texts, strict=False))


def label_of(right: Any, options: Mapping[str, Any], first: int = 0, by_text: bool = False) -> str:
    """The label of the right option, which is given as label, as number (from `first` on) or as text. `by_text`: all of
    the data set are texts. Raises `ValueError` if it is none of the options."""
    said = "" if right is None or isinstance(right, Mapping | list) else str(right).strip()
    by_label = {label.casefold(): label for label in options}
    texts = {str(text): label for label, text in options.items()}
    if by_text and said in texts:
        return texts[said]
    if not isinstance(right, int) and (found := by_label.get(said.strip("()., ").casefold())):
        return found
    if said.isdigit() and len(said) < 4 and first <= int(said) < first + len(options):
        return list(options)[int(said) - first]
    if said in texts:
        return texts[said]
    if not said:
        raise ValueError("has no right answer: if no row has one, as in many test splits, take another (validation)")
    raise ValueError(f"has the right answer {printable(said, 40)!r}, which is none of its options {', '.join(options)}")


def single_columns(known: Mapping[str, str]) -> list[str]:
    """The columns that hold an option each: A, B; option_a; opa; option1; choice1. `known`: by folded names."""
    for stem in ("", "option", "op", "choice", "answer", "ending", "sol"):
        for marks in ("abcdefghij", "0123456789", "123456789") if stem else ("abcdefghij",):
            there = list(takewhile(known.__contains__, (f"{stem}{mark}" for mark in marks)))
            if len(there) > 1:
                return [known[name] for name in there]
    return []
