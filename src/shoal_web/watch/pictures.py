"""Pictures of questions for the page. They are drawn again from the question's identity, never read from a folder."""

from __future__ import annotations

import re
from typing import Any, Final

from shoal.tasks.pictures import data_address, pictures_of

IDENTITY: Final = re.compile(r"([\w.+-]{1,40}) ([0-9]{1,19}) ([0-9]{1,4})")
WIDTH: Final = 192
"""Pixels of a picture on the page, about."""


def shown_again(task: Any, version: Any, seed: Any, index: Any) -> list[str]:
    """The addresses of a question's pictures. None for another kind of identity: a run's folder may be a stranger's."""
    if not (isinstance(task, str) and isinstance(version, str) and isinstance(seed, int) and isinstance(index, int)):
        return []
    return [data_address(picture, WIDTH) for picture in pictures_of(task, version, seed, index)]


def identified(task: str, identity: str | None) -> list[str]:
    """The same by the column `identity` of transcripts: version, seed and index."""
    found = IDENTITY.fullmatch(identity or "")
    return shown_again(task, found[1], int(found[2]), int(found[3])) if found else []
