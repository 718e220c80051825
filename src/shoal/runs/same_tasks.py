"""Whether a checkpoint's tasks are today's: data or a library may have changed since, and questions with them.

save_tasks(checkpoint, tasks)
check_tasks(checkpoint, tasks)      # raises UserError where a task is another one now
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from shoal.errors import UserError
from shoal.tasks import Tasks

FILE: Final = "tasks.json"


def save_tasks(checkpoint: Path, tasks: Tasks) -> None:
    """Writes the identity of each task: its name, its version (the hash of a data set), the hash of its settings."""
    identities = dict(zip(tasks.labels, tasks.identities, strict=True))
    (checkpoint / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(identities)))


def check_tasks(checkpoint: Path, tasks: Tasks) -> None:
    """Raises `UserError` if a task of the checkpoint has other questions now."""
    kept = msgspec.json.decode((checkpoint / FILE).read_bytes(), type=dict[str, tuple[str, str, str]])
    for label, now in zip(tasks.labels, tasks.identities, strict=True):
        before = kept.get(label, now)
        for what, then, today in zip(("name", "data or version", "settings"), before, now, strict=True):
            if then != today:
                raise UserError(
                    f"the task {label!r} is not the one that this run began with: its {what} was {then[:12]} and is "
                    f"{today[:12]} now. Bring back what was there, or begin a new run with this run's model (--model)"
                )
