"""Pictures of questions and drawings among answers, made safe to be shown.

    with_drawings([{"completion": '<svg viewBox="0 0 8 8"><circle r="2" onclick="..."/></svg>', ...}])
    # [{..., "drawing": '<svg ... viewBox="0 0 8 8"><circle r="2"/></svg>'}]

A question's pictures are drawn again from its identity, never read from a folder. A page shows drawings as pictures, in
which a browser runs nothing and fetches nothing.
"""

import re
from functools import cache
from typing import Any, Final

from shoal.config.own_code import call_offered, offered
from shoal.config.tasks import PICTURES, TaskSpec
from shoal.tasks import SUITES, Task, create_task
from shoal.tasks.pictures import data_address
from shoal.tasks.task import MAX_INDEX
from shoal_web.watch.source import Data

IDENTITY: Final = re.compile(r"([\w.+-]{1,40}) ([0-9]{1,19}) ([0-9]{1,4})")
WIDTH: Final = 192  # pixels of a picture on the page, about
VIEWS: Final = "shoal.views"  # entry points of packages that make a kind of answer safe to be shown
SVG: Final = "svg"


def shown_again(task: Any, version: Any, seed: Any, index: Any) -> list[str]:
    """The addresses of a question's pictures. None for another kind of identity: a run's folder may be a stranger's."""
    if not (isinstance(seed, int) and 0 <= seed < 2**63 and isinstance(index, int) and 0 <= index <= MAX_INDEX):
        return []
    if task not in [spec.name for spec in SUITES[PICTURES]] or (made := _made(task)).version != version:
        return []
    return [data_address(picture, WIDTH) for picture in made.question(seed, index).pictures]


@cache
def _made(task: str) -> Task:
    """The task, which remembers the pictures that it drew last."""
    return create_task(TaskSpec(name=task))


def identified(task: str, identity: str | None) -> list[str]:
    """The same by the column `identity` of transcripts: version, seed and index."""
    found = IDENTITY.fullmatch(identity or "")
    return shown_again(task, found[1], int(found[2]), int(found[3])) if found else []


def drawing_in(text: str | None) -> str | None:
    """The drawing in a text as plain shapes; None where there is none."""
    if not text or "<svg" not in text or SVG not in offered(VIEWS):
        return None
    drawn: str | None = call_offered(VIEWS, SVG, text)
    return drawn


def with_drawings(answers: list[Data]) -> list[Data]:
    """The answers, each with its `drawing` if it is one."""
    return [answer | {"drawing": drawing_in(answer["completion"])} for answer in answers]
