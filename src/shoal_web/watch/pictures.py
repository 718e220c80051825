"""Pictures of questions, drawn again from the identity of a question, never read from a folder."""

import re
from functools import cache
from typing import Any, Final

from shoal.config.tasks import PICTURES, TaskSpec
from shoal.tasks import SUITES, Task, create_task
from shoal.tasks.pictures import data_address
from shoal.tasks.task import MAX_INDEX

IDENTITY: Final = re.compile(r"([\w.+-]{1,40}) ([0-9]{1,19}) ([0-9]{1,4})")
WIDTH: Final = 192  # pixels of a picture on the page, about


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
