"""Where questions come from and how answers are scored.

    tasks = Tasks(config)                           # draws, regenerates and splits questions
    with Verifier(config) as verifier:              # scores answers, in a process of its own
        verifier.score([(question.id, ["42", "43"])])

See docs/tasks.md.
"""

from shoal.tasks.draw import Tasks, UnknownQuestion, slot_seed
from shoal.tasks.suites import SUITES, suite
from shoal.tasks.task import Task, create_task
from shoal.tasks.verifier import Verifier

__all__ = ["SUITES", "Task", "Tasks", "UnknownQuestion", "Verifier", "create_task", "slot_seed", "suite"]
