"""Display names: what a node's owner calls it, shown beside the name that follows from its key.

    fault("Ada's laptop")                        # "": it may be used
    full_name("brave-otter-3f2a", "Ada")             # brave-otter-3f2a (Ada)
    full_name("brave-otter-3f2a", hostile)           # brave-otter-3f2a

A name proves nothing. A stranger's is shown only if it keeps the rules of `fault`: short, visible, unlike the name of a
key, and in one script (UTS 39; UAX 31), since letters of two may look the same. One in Hebrew or Arabic stands between
isolates (UAX 9), in a page in a <bdi>; a table in a terminal may cut its end, so there it is the last cell of its line.
"""

import re
import unicodedata
from typing import Final

import regex

LONGEST: Final = 32
"""Characters."""
SIGNS: Final = " ._-'"
"""What may stand in it beside letters, marks on letters and digits."""
MARKS: Final = 2
"""On one letter."""
INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that are not seen."""
_WORD, _GAP, _DIGITS = r"(?=[01]*[^\W\d_])[^\W2-9_]+", rf"[{re.escape(SIGNS)}]+", r"([0-9a-foil]|[^\W\x00-\x7f]){4}"
LIKE_A_KEY: Final = re.compile(
    rf"{_WORD}-{_WORD}-{_DIGITS}|{_WORD}{_GAP}{_WORD}{_GAP}([0-9a-foil]{{4}}|(?=\w*\d){_DIGITS})(?!\w)"
)
"""Two words and four hex digits, or what looks like them: letters like digits, and 0 and 1 like o and l. Where the
words are not joined as in a key, a third word of four letters is none of it in scripts that have no hex digits: many
people have three names."""
SCRIPTS: Final = [
    *"Latin Greek Cyrillic Armenian Georgian Ethiopic Devanagari Bengali Gurmukhi Gujarati Oriya Tamil Telugu".split(),
    *"Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Khmer Hebrew Arabic Thaana".split(),
    *("Han Hiragana Katakana", "Han Hangul", "Han Bopomofo"),
]
"""Those that a name may be written in; some languages need several."""
MARK: Final = regex.compile(r"\p{sc=Inherited}")
"""A mark that may stand on a letter or digit of any script."""
_BESIDE: Final = rf"{re.escape(SIGNS)}0-9\p{{sc=Inherited}}"
_LETTERS: Final = ["".join(rf"\p{{scx={one}}}" for one in script.split()) for script in SCRIPTS]
IN_ONE_SCRIPT: Final = regex.compile("|".join(f"[{_BESIDE}{letters}]*" for letters in _LETTERS))


def fault(text: str) -> str:
    """Why `text` may not be a display name, in a few words; "" if it may."""
    if not 1 <= len(text) <= LONGEST:
        return f"a display name has 1 to {LONGEST} characters"
    kinds = [unicodedata.category(char)[0] if char not in SIGNS else "sign" for char in text]
    if not {"L", "N"} & set(kinds) or not set(kinds) <= {"L", "M", "N", "sign"} or INVISIBLE.search(text):
        return f"a display name has letters, digits, spaces and {SIGNS.strip()} only"
    if text != " ".join(text.split()) or not unicodedata.is_normalized("NFC", text):
        return "a display name has no space at its ends, no two in a row, and is in Unicode's form NFC"
    if "M" * (MARKS + 1) in "".join(kind[0] for kind in kinds) or kinds[0] == "M":
        return "a display name has too many marks on a letter"
    if is_right_to_left(text) and not unicodedata.is_normalized("NFKC", text):
        return "a display name has plain letters, no ligatures or presentation forms"
    if any(unicodedata.bidirectional(char) == "AN" for char in text):
        return "a display name has the digits 0 to 9"
    if not IN_ONE_SCRIPT.fullmatch(text):
        return "a display name is in one script, such as Latin: letters of several can imitate another name"
    if LIKE_A_KEY.search(MARK.sub("", unicodedata.normalize("NFKC", text).casefold())):
        return "a display name does not look like the name of a key, such as brave-otter-3f2a"
    return ""


def harmless(text: str | None) -> str:
    """A stranger's display name, or "" if it may not be shown."""
    return text if text and not fault(text) else ""


def is_right_to_left(text: str) -> bool:
    """Whether any letter of it is written from right to left."""
    return any(unicodedata.bidirectional(char) in ("R", "AL") for char in text)


def isolated(display: str) -> str:
    """A harmless display name that turns nothing beside it around."""
    return f"\u2068{display}\u2069" if is_right_to_left(display) else display


def full_name(name: str, display: str | None) -> str:
    """A key's name with the display name beside it, if that may be shown."""
    return f"{name} ({isolated(found)})" if (found := harmless(display)) else name
