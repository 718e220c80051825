"""Whether the nodes' models can read the questions of a run, before a round asks one.

check_questions(config, [policy])
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from shoal.config.data import DATA
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.policy.language import LanguagePolicy
from shoal.rollout import Message, Question
from shoal.tasks import Tasks
from shoal.tasks.create import is_of_reasoning_gym
from shoal.tasks.draw import QuestionFailed
from shoal.tasks.suites import specs_of


def check_questions(config: Config, policies: Sequence[LanguagePolicy]) -> None:
    """Raises `UserError` if a task shows pictures and a model reads text alone, or if a model cannot read the longest
    question of a data set."""
    _check_pictures(config, policies)
    _check_lengths(config, policies)


def _check_pictures(config: Config, policies: Sequence[LanguagePolicy]) -> None:
    if all(policy.lm.vision for policy in policies) or all(
        is_of_reasoning_gym(spec.name) or spec.name == DATA for spec in specs_of(config.tasks)
    ):
        return
    tasks = Tasks(config.tasks)
    for label in tasks.labels:
        with contextlib.suppress(QuestionFailed):  # a run goes on without such questions, and says so
            question = tasks.made(label, 0, 0)
            for policy in policies:
                policy.prompt_ids(question)  # which says what is wrong


def _check_lengths(config: Config, policies: Sequence[LanguagePolicy]) -> None:
    if not policies or all(spec.name != DATA for spec in config.tasks.sources):
        return
    longest = Tasks(config.tasks).longest()
    for policy in policies:
        for label, questions in longest.items():
            _check_length(policy, label, questions)


def _check_length(policy: LanguagePolicy, label: str, questions: Sequence[Question]) -> None:
    tokens, question = max(
        ((len(policy.prompt_ids(question)), question) for question in questions), key=lambda found: found[0]
    )
    answer = policy.sampling.max_completion_length
    room = policy.context - answer
    if tokens <= room:
        return
    frame = len(policy.prompt_ids(msgspec.structs.replace(question, prompt=(Message("user", "?"),))))
    characters = sum(len(message.content) for message in question.prompt)
    fit = max(0, room - frame) * characters // max(1, tokens - frame) * 9 // 10
    leave = f"leave longer rows out (most_characters = {fit}), or " if fit else ""
    raise UserError(
        f"the longest question of the data set {label!r} takes {tokens:,} tokens, and '{policy.name}' reads "
        f"{max(0, room):,} before an answer of {answer}: {leave}lower --max-completion-length or --examples"
    )
