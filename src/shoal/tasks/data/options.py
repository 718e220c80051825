"""The options of a multiple choice question, in the ways in which data sets have them.

labelled({"text": ["red", "blue"], "label": ["1", "2"]})      # {"1": "red", "2": "blue"}
label_of(1, {"A": "red", "B": "blue"})                        # "B": numbers count from 0
"""

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from shoal.answers.choice import LETTERS
from shoal.untrusted import printable


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
