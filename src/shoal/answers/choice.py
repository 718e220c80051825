r"""The option that an answer chooses, by its label or by its text.

    choice("B. because option A is too small", "ABCD")                # "B"
    choice("It is \\boxed{Rome}", {"A": "Paris", "B": "Rome"})        # "B"
    choice("A or B", "ABCD")                                           # "": two choices are none

The first explicit statement of a choice wins over a mention ("option A is too small").
"""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final

from shoal.answers.place import bare, place
from shoal.rollout import canonical

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS: Final = "0123456789"
_COMMAND = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathsf|mbox|boxed)\s{0,4}\{([^{}]*)\}")
_MARKS = re.compile(r"\*{1,3}|`{1,3}|__|\$|\\[()\[\] ,;]|[\"“”„«»✅✔✓☑\ufe0f]|\\(?:quad|qquad)\b")
WIDE = {ord(wide): narrow for wide, narrow in zip("（）：．，－。、；", "():.,-.,;", strict=True)}
WIDE |= {0xFF21 + place: chr(65 + place) for place in range(26)} | {
    0xFF41 + place: chr(97 + place) for place in range(26)
}


def choice(text: str, options: Collection[str] | Mapping[str, str]) -> str:
    """The label that a completion chooses; empty without one, and where it chooses two. `options`: the labels, with the
    texts of the options where they are known."""
    where = place(text)
    if where is None:
        return ""
    texts = options if isinstance(options, Mapping) else {}
    patterns = _patterns(options if isinstance(options, str) else tuple(options))
    said = patterns.other.sub("", patterns.listed.sub("\n", _plain(where.text))).strip()
    for one in dict.fromkeys((_CHANGED.split(said)[-1].strip(), said)):
        alone = _alone(one, where.how == "whole", patterns, texts)
        if found := _stated(one, patterns, texts) if alone is None else alone:
            return found
    return ""


_OPTION = re.compile(r"^[ \t]{0,8}[(\[]?([A-Za-z]|\d{1,2})[).:\]][ \t]+(\S.{0,400})$", re.MULTILINE)


def options_in(question: str) -> dict[str, str]:
    """The options that a question lists, a line each: texts by labels, which follow each other. Empty without any."""
    for first in "A1a0":
        found: dict[str, str] = {}
        for label, text in _OPTION.findall(question):
            if label == (chr(ord(first) + len(found)) if first.isalpha() else str(int(first) + len(found))):
                found[label.upper()] = text.strip()
        if len(found) > 1:
            return found
    return {}


def _plain(text: str) -> str:
    """Without the marks of formulas and of bold text."""
    for _ in range(3 if "\\" in text else 0):
        text = _COMMAND.sub(r"\1", text)
    return _MARKS.sub(lambda mark: " " if mark[0].startswith("\\") else "", text.translate(WIDE)).strip()


_CHANGED = re.compile(r"\b(?:wait|hmm|actually|correction)\b[,.:!… ]{0,4}(?=\S)", re.IGNORECASE)
"""The writer changes his mind."""
_SENTENCE = re.compile(r"[^.;!?\n]*[.;!?\n]?")
_WRONG = re.compile(r"\b(?:incorrect|wrong|false)\b", re.IGNORECASE)
"""In a sentence that says what is wrong."""
_NOT = re.compile(r"\b(?:not|nicht|never)\b|n['’]t\b")


class _Patterns:
    """What the ways of choosing one of some labels look like."""

    def __init__(self, labels: Collection[str]) -> None:
        labels = sorted({label.upper() for label in labels})
        upper = f"(?:{'|'.join(map(re.escape, sorted(labels, key=len, reverse=True)))})"
        lower = f"(?:{upper.lower()})"
        named = r"option|choice|letter|answer|ans|opci[óo]n|r[ei]sp(?:o|ue)sta|antwort|r[ée]ponse"
        option = rf"(?:(?:the|la|l['’])?\s?(?:{named}|number)\s{{1,2}}#?|la\s)?"
        strong = rf"(?:[(\[]\s?((?i:{upper}))\s?[)\]]|({upper})(?![A-Za-z0-9'’]|[.,]\d))"
        label = rf"(?i:{option})(?:{strong}|({lower})(?=\s*(?:$|[.,;:)!\n])))"
        wrong = (
            r"(?!\s(?:(?:is|are)\s(?:not|wrong|incorrect|false|out|worse|impossible|eliminated|excluded|ruled\sout)|isn['’]t"
            r"|(?:can|must|should)\sbe\s(?:ruled\sout|eliminated|excluded|discarded)|(?:would|must)\sbe\s(?:wrong|false)"
            r"|cannot|can['’]t)\b)"
        )
        self.label = re.compile(rf"{option}[(\[]?\s?({upper})\s?[)\]]?[.:]?", re.IGNORECASE)
        """All that there is."""
        self.strong = re.compile(rf"(?i:{option}){strong}{wrong}")
        """At the beginning of what is said to be the answer."""
        self.parts = re.compile(rf"(?:^|[\s,;]+)[(\[]?({upper})[).:\]]?\s")
        """Labels, with the texts of the options between them."""
        reason = r"\s(?:because|since|as|due|denn|weil|only|maybe|probably|(?i:i\sthink)|rather\sthan)\b"
        self.front = re.compile(
            rf"(?i:{option})(?:{strong}(?=\s*(?:$|\n|[.:;),–—!]|\?\s*$|-\s|\(not\s)|{reason})|({lower})(?=[).:]\s)){wrong}"
        )
        """At the beginning of a text."""
        self.joined = re.compile(
            rf"\s{{0,3}}[).:]?\s{{0,3}}(?:,?\s?(?i:or|and|oder|und|ou|et)\b|[,/&+]|[;.](?=\S))\s{{0,3}}(?i:{option}){strong}{wrong}"
        )
        """A second label behind one."""
        chosen = (
            r"\b(?:i|we)(?:\s(?:would|will)|['’](?:d|ll))?\s(?:choose|pick|select|go\s(?:with|for)|say|vote\sfor|take)"
            r"|\bi(?:['’]m|\sam)\sgoing\s(?:with|for)|(?:^|[.!?]\s)(?:choose|pick|select|definitely|probably|most\slikely|obviously|clearly|richtig\sist)|^i['’]m\snot\ssure,\sbut"
            r"|\b(?:it|this|that)(?:\sis|['’]s|\s(?:must|should|would|could)\sbe)|^could\sbe"
            rf"|(?<!wrong\s)(?<!incorrect\s)(?<!false\s)(?:{named})(?:\scorr?e(?:ct|t|tt)[ae])?"
            r"(?:\s(?:is|ist|est|es|é|è|must\sbe|should\sbe|would\sbe)|\s{0,2}[:=])"
            r"|选项[是为]|选择?|正解は"
        )
        right = r"(?:correct[ae]?|right|true|answer|best|better|richtig|korrekt)"
        self.statements = (
            re.compile(
                rf"(?<![\w-])(?i:{option})(?:{strong}|({lower}))\s(?i:is|ist|es|est|must\sbe|seems)\s"
                rf"(?i:(?:the|clearly|definitely)\s)?(?i:{right})\b"
            ),
            re.compile(rf"(?i:option|choice|answer)\s{strong}\s(?i:it\sis)\b"),
            re.compile(rf"(?i:{chosen})\s?:?\s{{0,2}}{label}{wrong}"),
        )
        self.last = re.compile(
            rf"(?:(?:^|[.!?:,])\s{{1,3}}|\n\s{{0,3}}|\b(?i:so|only|thus|hence|therefore),?\s){strong}[.)]?\s*$"
        )
        self.mention = re.compile(rf"(?i:option|choice|answer)\s{{1,2}}{strong}{wrong}|\(({upper})\){wrong}")
        one = rf"(?i:{option})(?:[(\[]\s?(?i:{upper})\s?[)\]]|{upper}(?![A-Za-z0-9'’]))"
        several = rf"{one}(?:(?:,?\s(?i:n?or|and)\s|,\s){one}){{0,9}}"
        self.other = re.compile(
            rf"(?i:\b(?:not|nicht)\s{option}){strong}\s?,?\s(?i:but|sondern)\s"
            rf"|(?i:\b(?:neither|rul(?:e|ing)\sout|eliminat(?:e|ing)|exclud(?:e|ing)))\s{several}"
            r"(?:(?i:\s(?:are|is)\s(?:right|correct))|,?\s(?i:leav(?:es|ing)))?[;,.]?"
        )
        """What is not chosen."""
        marks = [rf"[(\[]?{re.escape(one)}[).:\]]\s" for one in labels[labels[:1] == ["0"] :][:3]]
        more = rf"(?:\n[ \t]*[(\[]?{upper}[).:\]]\s[^\n]*)*"
        between = rf"(?:(?!\s{marks[0]})[^\n]){{1,300}}?\s"
        self.listed = re.compile(rf"(?:^|(?<=\s)){between.join(marks)}[^\n]*{more}" if len(marks) > 1 else "(?!)")
        """The options themselves, said again."""


_patterns = lru_cache(maxsize=64)(_Patterns)


def _alone(said: str, whole: bool, patterns: _Patterns, texts: Mapping[str, str]) -> str | None:
    """What an answer's place, or a `whole` text, chooses by itself. None: nothing; empty: two labels."""
    said = re.sub(r"^(?:[-•→⇒]|=>)\s{1,4}|^#", "", said)
    said = said if len(set(words := re.split(r"[\s.,]+", said.strip(".")))) > 1 else words[0]  # B. B. B
    if found := patterns.label.fullmatch(bare(said)) or patterns.label.fullmatch(said):
        return _letter(found)
    if by_text := _by_text(said, texts) or (whole and _by_text(said.rpartition("=")[2], texts)):
        return by_text
    first, *parts = patterns.parts.split(said) if whole else [said]
    by_texts = [_by_text(text, texts) if texts else len(text.split()) < 4 for text in parts[1::2]]
    if by_texts and not first and all(by_texts) and (texts or parts[::2][:2] == ["A", "B"]):
        return parts[0] if {*by_texts, *parts[::2]} == {parts[0]} else ""
    found = patterns.front.match(said) or (None if whole else patterns.strong.match(said))
    if found is None:
        return None
    if patterns.joined.match(said, found.end()):
        return ""
    last = patterns.last.search(said) if whole else None
    return _letter(found) if last is None or _letter(last) == _letter(found) else None


def _stated(said: str, patterns: _Patterns, texts: Mapping[str, str]) -> str:
    """What the sentences of a text choose: by a statement, the label at its end, or the only label or text there."""
    for statement in patterns.statements:
        if found := list(statement.finditer(said)):
            if any(patterns.joined.match(said, one.end()) for one in found):
                return ""
            letters = set(map(_letter, found))
            return letters.pop() if len(letters) == 1 else ""
    if last := patterns.last.search(said):
        first = patterns.front.match(said)
        return _letter(last) if first is None or _letter(first) == _letter(last) else ""
    if mentioned := set(map(_letter, patterns.mention.finditer(said))):
        by_text = _by_text(patterns.mention.sub("", said), texts)
        return mentioned.pop() if len(mentioned) == 1 and by_text in ("", *mentioned) else ""
    last_line = said.rpartition("\n")[2]
    if _OPTION.match(last_line) and len(options_in(said)) > 1:  # the options as they were asked
        return ""
    last_line = "".join(one for one in _SENTENCE.findall(last_line) if not _WRONG.search(one, 1)) if texts else ""
    line = re.sub(r"(?<!\d)\.|\.(?!\d)|[,;:!?()]", "", f" {_folded(last_line)} ")
    places = {label: line.find(f" {_folded(text)} ") for label, text in texts.items() if text}
    named = {label for label, start in places.items() if start >= 0 and not _NOT.search(line[:start])}
    return named.pop() if len(named) == 1 else ""


def _by_text(said: str, texts: Mapping[str, str]) -> str:
    """The label whose text this is; a "the" in front and a full stop behind do not count."""
    folded = _folded(said).replace(" ", "")
    found = [label for label, text in texts.items() if _folded(text).replace(" ", "") == folded]
    return found[0] if len(found) == 1 else ""


@lru_cache(maxsize=4096)
def _folded(text: str) -> str:
    text = re.sub(r"^(?:the|a|an)\s", "", canonical(bare(_plain(text))).casefold())
    return re.sub(r"(?<=\d)(?:\.0+(?!\d)|(?<=\.\d)0+(?!\d))", "", text)  # 5.40 is 5.4


def _letter(found: re.Match[str]) -> str:
    return next(group for group in found.groups() if group).upper()
