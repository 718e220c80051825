r"""Where in a completion the answer stands, and what is written around it.

    place("<think>3 or 4?</think>So the answer is **4**.")      # Place(text="4", how="statement")
    bare(r"$\boxed{\text{Paris}}$")                               # "Paris"

The order is the same for every kind of answer: tags, boxes, `####`, a statement such as "the answer is", otherwise all
of it. Of several marks the last one counts that is not empty. What stands inside `<think>` is not an answer.
Of a text longer than `LONGEST`, what stands behind its last `</think>` is read, or its beginning and its end.
"""

import html
import re
from functools import lru_cache
from math import factorial
from typing import Final, NamedTuple

MOST_MARKS: Final = 12
"""Pairs of marks around each other."""
READ: Final = 2000
"""Characters of a text without thoughts that are read at its beginning and at its end."""
LONGEST: Final = 16_000
"""Characters of the longest text that is read whole; of a longer one as many at its end."""

_THOUGHT = re.compile(
    r"[<◁](/?)(?:think|thinking|thought|thoughts|reasoning|scratchpad)[>▷]|(\[THINK\])|(\[/THINK\])"
    r"|<\|(?:begin|end)_of_thought\|>",
    re.IGNORECASE,
)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s{0,4}\{")
_BRACE = re.compile(r"\\?[{}]")
_TAGS = re.compile(r"<(/?)(?:answer|final_answer|final)>", re.IGNORECASE)
_STATEMENT = re.compile(
    r"""
    (?: (?<!wrong\s)(?<!incorrect\s)(?<!false\s)
        \b(?:answer|ans|result|solutions?|antwort|lösung|r[ée]ponse|respuesta|risposta|ответ)\b
        (?:\s{1,3}to\ [^.:\n=]{1,80}?|\s(?:correct[ae]|lautet))? [*_`"')\]]{0,4}
        (?: \s{0,3} [:：=→] | \s(?:--|[-–—])(?=\s)
          | \s{1,3} (?:is|are|was|(?:must|should|would|will)\ be|ist|est|es)\b (?:\s(?:clearly|therefore)\b)? )
      | (?:^|\n)\s{0,4}\#{4}(?=\s)
      | (?:答案[是为选：:]|答え[は：:]|정답[은:])
    ) [ \t]{0,4} [:：=]? [ \t]{0,8} (?:[*_`]{1,3}(?=\s))?
    (?!\s{0,9}(?:not|nicht)\b(?!.{0,60}\b(?:but|sondern)\b))
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SHORT = re.compile(
    r"([-+−–$€£*_`(]{0,4}\d[\d,.]{0,40}[%)*_`$]{0,4}(?:\s[a-z]{1,20}){0,3})\.\s(?!.{0,200}\b(?i:wait|sorry|wrong)\b)"
)
"""A sentence of a number and its unit."""
_MEMBER = re.compile(r"^(\"[^\"]*\"|[-\d.]+),\s?\"\w+\":.*")
_NEXT = re.compile(r"\n\s{0,4}[#*]{0,4}\s?(?:question|problem|exercise|q)\b[ \t#\d]{0,6}\*{0,2}[:：]", re.IGNORECASE)
"""A question behind the answer, and what a model says to it."""
_ENDED = re.compile(
    r"\b(?:is|are|has|have|makes?|so|total|=)\s[^\n?]{0,40}\d[^\n?:]{0,20}\s*$|=\s?[$€£]?\d[\d.,]{0,20}\s*$"
)
"""The end of a text that gives a number."""
_END = re.compile(
    r"<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|end)\|>|</s>\s{0,9}$|<(?:eos|end_of_turn)>|<｜end▁of▁sentence｜>|(?<=\S)\s<\|user\|>"
)
_LOOK = re.compile(r"</?(?:b|strong|i|em|u|p|sup)>|<(del|s)>.{0,80}?</\1>")
_ENTITY = re.compile(r"&(?:#\d{1,6}|#x[0-9a-fA-F]{1,5}|[a-zA-Z]{2,8});")
_UNSEEN = re.compile("[\x00-\x08\xad\u200b\u2060\ufeff]")
_AND = re.compile(r"[\s$.)\]\\]{0,9}(?:[,;&]|\b(?:and|or|und|oder|et|ou)\b){1,2}[\s$(\[\\]{0,9}")
"""Between the parts of one answer."""
_PAIRS = [(mark, mark) for mark in ("**", "__", "```", "$$", "*", "_", "`", '"', "'", "$")]
"""What may stand around an answer, the longer first."""
_PAIRS += [(r"\(", r"\)"), (r"\[", r"\]"), ("“", "”"), ("„", "“"), ("‘", "’"), ("«", "»"), ("「", "」")]
_BRACKETS: Final = [("(", ")"), ("[", "]"), ("{", "}")]
_COMMAND = re.compile(
    r"\\(?:text|textbf|textit|textrm|texttt|mathrm|mathbf|mathit|mathsf|mbox|emph|boxed|fbox)\s{0,4}\{"
)
_LEADING = re.compile(
    r"^(?:[-*•>]\s{1,4})?(?:the\s{1,4})?(?:final\s{1,4}|correct\s{1,4})?(?:answer|ans)\s{0,4}[:：=]\s*", re.IGNORECASE
)


class Place(NamedTuple):
    """A part of a completion that is the answer."""

    text: str
    how: str
    """tag, box, statement or whole."""


def place(text: str) -> Place | None:
    """Where the answer stands; None if nothing is answered: the text is empty, or nothing but thoughts."""
    if len(text) > LONGEST:
        text = text[max(0, text.rfind("</think>")) :]
        text = text if len(text) <= LONGEST else f"{text[:READ]}\n…\n{text[-LONGEST:]}"
    said = _as_shown(clipped(spoken(text))).strip().replace("\n> ", "\n")  # Markdown's quotes
    if not said:
        return None
    first = _NEXT.split(said, maxsplit=1)[0]
    for part in dict.fromkeys((first, said)):
        for how, found in (("tag", tagged(part)), ("box", boxed(part)), ("statement", _stated(part))):
            if found:
                inner = place(found) if how == "tag" else None  # a tag may hold a box or a sentence
                return Place(inner.text if inner else worked(found) if how == "box" else found, how)
        alone = len(part.split()) == 1 and re.fullmatch(r"\S*\d\S*|\W*\w\W*", part.strip())
        if part is not said and (alone or _ENDED.search(part)):
            return Place(part.strip(), "whole")
    return Place(said, "whole")


def _as_shown(text: str) -> str:
    """The text up to the mark of its end, with the characters that HTML names."""
    if "&" in text or "<" in text:
        text = _ENTITY.sub(lambda found: html.unescape(found[0]), _END.split(text, maxsplit=1)[0])
        text = _LOOK.sub("", text.replace("<sup>", "^"))
    return text if text.isprintable() else _UNSEEN.sub("", text)


def spoken(text: str) -> str:
    """The text without thoughts. Before a closing mark without an opening one, everything is a thought (chat templates
    may open it); behind an opening one that is never closed, too."""
    if not ("<" in text or "[" in text or "◁" in text):
        return text
    text = text.rpartition("<|channel|>final<|message|>")[2]
    parts: list[str] = []
    start, depth = 0, 0
    for mark in _THOUGHT.finditer(text):
        closes = mark[1] == "/" or mark[3] is not None or mark[0].lower().startswith("<|end")
        if closes and not depth:
            parts.clear()
        elif not depth:
            parts.append(text[start : mark.start()])
        depth = 0 if closes else 1
        start = mark.end()
    if not depth:
        parts.append(text[start:])
    return "".join(parts)


def clipped(text: str) -> str:
    """At most `READ` characters of its beginning and as many of its end: an answer stands there."""
    return text if len(text) <= 2 * READ else f"{text[:READ]}\n…\n{text[-READ:]}"


def tagged(text: str, closed: bool = False) -> str | None:
    """What stands in the last pair of answer tags that is not empty. Unless it must be `closed`, where no pair has
    anything: what stands behind the last opening tag."""
    opened, found, start = not closed, None, 0  # the question may have opened it
    for mark in _TAGS.finditer(text):
        if not mark[1]:
            opened, start = True, mark.end()
        elif opened:
            found, opened = text[start : mark.start()].strip() or found or "", False
    return found or (text[start:].strip() if opened and start and not closed else found)


def worked(text: str) -> str:
    """The text with its first factorials as numbers."""
    return _FACTORIAL.sub(lambda found: str(factorial(int(found[1]))), text, 9)


_FACTORIAL = re.compile(r"\b(\d{1,2})!(?!=)")


def boxed(text: str) -> str | None:
    """The content of the last box that is not empty; of several with "," or "and" between them, all."""
    found, last = None, 0
    for content, start, end in boxes(text):
        more = found and content and content != found and _AND.fullmatch(text, last, start)
        found, last = f"{found}, {content}" if more else content or found or "", end
    return found


def boxes(text: str) -> list[tuple[str, int, int]]:
    """The contents of all boxes that are not within another one, and where they begin and end."""
    found: list[tuple[str, int, int]] = []
    end = 0
    for box in _BOX.finditer(text):
        if box.start() < end:
            continue
        depth = 1
        for brace in _BRACE.finditer(text, box.end()):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if not depth:
                end = brace.end()
                found.append((text[box.end() : brace.start()].strip(), box.start(), end))
                break
        else:
            break
    return found


def _stated(text: str) -> str | None:
    """The rest of the line behind the last statement of an answer that is not empty; the next line if it ends there."""
    found = None
    for statement in _STATEMENT.finditer(text):
        rest = text[statement.end() :].lstrip()[:READ]
        line = rest.partition("\n")[0].strip()
        if line.endswith("}") and "{" not in line:  # of an object in JSON
            line = _MEMBER.sub(r"\1", line[:-1].strip())
        for mark in ("**", "*", "`"):  # which begins before the statement
            line = line.removesuffix(mark) if line.count(mark) == 1 else line
        line = short[1] if (short := _SHORT.match(line)) else line
        found = line if re.search(r"\w", line) else found
    return found


@lru_cache(maxsize=1024)
def bare(text: str, brackets: bool = True) -> str:
    """A text without the marks around it: bold, quotes, formulas, a full stop, a leading "Answer:", and `brackets`."""
    for _ in range(MOST_MARKS):
        before, text = text, text.strip()
        text = _LEADING.sub("", text if text.endswith("...") else text.rstrip(".。!;,:"), count=1)
        for opening, closing in _PAIRS + _BRACKETS if brackets else _PAIRS:
            if text.startswith(opening) and text.endswith(closing):
                inner = text[len(opening) : -len(closing)]
                if len(text) > len(opening + closing) and not _crosses(inner, opening, closing):
                    text = inner
                    break
        command = _COMMAND.match(text)
        if command and text.endswith("}") and not _crosses(text[command.end() : -1], "{", "}"):
            text = text[command.end() : -1]
        if text == before or not text:
            return text or before.strip()
    return text


def _crosses(inner: str, opening: str, closing: str) -> bool:
    """Whether a pair around `inner` is two pairs, as in `(a) or (b)` and `**a** and **b**`."""
    if opening == closing:
        return opening in inner
    depth = 0
    for mark in re.finditer(f"{re.escape(opening)}|{re.escape(closing)}", inner):
        depth += 1 if mark[0] == opening else -1
        if depth < 0:
            return True
    return depth != 0
