"""Display names: what a node's owner calls it, shown beside the name that follows from its key.

    fault("Ada's laptop")                        # "": it may be used
    full_name("brave-otter-3f2a", "Ada")             # brave-otter-3f2a (Ada)
    full_name("brave-otter-3f2a", hostile)           # brave-otter-3f2a

Anybody may choose any name, so it proves nothing and nothing is looked up by it. A stranger's name is shown only if it
keeps the rules of `fault`: short, visible, in one direction, and unlike the name of a key.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

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
LIKE_A_KEY: Final = re.compile(r"[a-z]+-[a-z]+-[0-9a-f]{4}")


def fault(text: str) -> str:
    """Why `text` may not be a display name, in a few words; "" if it may."""
    if not 1 <= len(text) <= LONGEST:
        return f"a display name has 1 to {LONGEST} characters"
    kinds = [unicodedata.category(char)[0] if char not in SIGNS else "sign" for char in text]
    if not {"L", "N"} & set(kinds) or not set(kinds) <= {"L", "M", "N", "sign"} or INVISIBLE.search(text):
        return f"a display name has letters, digits, spaces and {SIGNS.strip()} only"
    if text != " ".join(text.split()) or not unicodedata.is_normalized("NFC", text):
        return "a display name has single spaces within it alone, and is in Unicode's form NFC"
    if "M" * (MARKS + 1) in "".join(kind[0] for kind in kinds) or kinds[0] == "M":
        return "a display name has too many marks on a letter"
    if any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in text):
        return "a display name is written from left to right: terminals would turn the figures beside it around"
    if LIKE_A_KEY.search(unicodedata.normalize("NFKC", text).casefold()):
        return "a display name does not look like the name of a key"
    return ""


def harmless(text: str | None) -> str:
    """A stranger's display name, or "" if it may not be shown."""
    return text if text and not fault(text) else ""


def full_name(name: str, display: str | None) -> str:
    """A key's name with the display name beside it, if that may be shown."""
    return f"{name} ({found})" if (found := harmless(display)) else name
