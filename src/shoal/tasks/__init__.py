"""Where questions come from.

    tasks = Tasks(config)                           # draws, regenerates and splits questions
    [question] = tasks.draw(1, "any key")

See docs/tasks.md.
"""

from shoal.tasks.draw import Tasks, UnknownQuestion, slot_seed
from shoal.tasks.suites import SUITES, suite
from shoal.tasks.task import Task, create_task

__all__ = ["SUITES", "Task", "Tasks", "UnknownQuestion", "create_task", "slot_seed", "suite"]
