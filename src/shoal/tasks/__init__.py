"""Sources of questions.

    tasks = Tasks(config)                           # draws questions, makes them again, holds some out
    [question] = tasks.draw(1, "any key")

See docs/guides/tasks.md.
"""

from shoal.protocols import Environment
from shoal.tasks.create import create_task
from shoal.tasks.draw import Tasks, UnknownQuestion, slot_seed
from shoal.tasks.suites import SUITES
from shoal.tasks.task import Answered, Failed, NoVerdict, Task

__all__ = [
    "SUITES",
    "Answered",
    "Environment",
    "Failed",
    "NoVerdict",
    "Task",
    "Tasks",
    "UnknownQuestion",
    "create_task",
    "slot_seed",
]
