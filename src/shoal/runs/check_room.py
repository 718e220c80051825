"""Whether models can read the longest questions of data sets, before a round draws one of them.

check_room(config, [policy])
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.config.data import DATA
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.policy.language import LanguagePolicy
from shoal.rollout import Message, Question
from shoal.tasks import Tasks


def check_room(config: Config, policies: Sequence[LanguagePolicy]) -> None:
    """Raises `UserError` if a model cannot read the longest question of a data set: a round would, when it is drawn."""
    if not policies or all(spec.name != DATA for spec in config.tasks.tasks):
        return
    longest = Tasks(config.tasks).longest()
    for policy in policies:
        for label, questions in longest.items():
            _check_room(policy, label, questions)


def _check_room(policy: LanguagePolicy, label: str, questions: Sequence[Question]) -> None:
    tokens, question = max(
        ((len(policy.prompt_ids(question)), question) for question in questions), key=lambda found: found[0]
    )
    answer = policy.sampling.max_completion_length
    room = policy.context - answer
    if tokens <= room:
        return
    frame = len(policy.prompt_ids(msgspec.structs.replace(question, prompt=(Message("user", "?"),))))
    characters = sum(len(message.content) for message in question.prompt)
    fit = max(0, room - frame) * characters // (tokens - frame) * 9 // 10
    leave = f"leave longer rows out (most_characters = {fit}), or " if fit else ""
    raise UserError(
        f"the longest question of the data set {label!r} takes {tokens:,} tokens, and '{policy.name}' reads "
        f"{max(0, room):,} before an answer of {answer}: {leave}lower --max-completion-length or --examples"
    )
