"""Whether the nodes' models read pictures, before a round asks about one.

check_pictures(config, [policy])
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from shoal.config.settings import Config
from shoal.policy.language import LanguagePolicy
from shoal.tasks import Tasks
from shoal.tasks.draw import QuestionFailed
from shoal.tasks.pictures.questions import PICTURE_TASKS
from shoal.tasks.suites import specs_of


def check_pictures(config: Config, policies: Sequence[LanguagePolicy]) -> None:
    """Raises `UserError` if a task shows pictures and a model reads text alone."""
    if all(policy.lm.vision for policy in policies) or not any(
        spec.name in PICTURE_TASKS or ":" in spec.name for spec in specs_of(config.tasks)
    ):
        return
    tasks = Tasks(config.tasks)
    for label in tasks.labels:
        with contextlib.suppress(QuestionFailed):  # a run goes on without such questions, and says so
            question = tasks.made(label, 0, 0)
            for policy in policies:
                policy.prompt_ids(question)  # which says what is wrong
