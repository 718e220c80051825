"""Which models `shoal ask` asks, and in which form.

contenders = of_run(Path("runs/one"), config)       # its best model, and the one that this began from
policies = load_all(contenders, config, temperature=0.0, say=print)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError, nearest
from shoal.export.story import source_of_export
from shoal.rollout import Message, Question, QuestionId
from shoal.runs.folder import began_from

if TYPE_CHECKING:
    from shoal.policy.endpoint import EndpointPolicy
    from shoal.policy.language import LanguagePolicy


@dataclass(frozen=True)
class Contender:
    """A model that is asked."""

    label: str
    source: str
    optional: bool = False
    """Whether the others are asked without it if it cannot be loaded."""


def of_run(run: Path, config: Config) -> list[Contender]:
    """A run's best model, and the one that it began from. `config`: of the run. Raises `UserError` if it has none."""
    best = source_of_export(str(run))
    found = [Contender(f"{best.node} after round {best.round}", best.model)]
    began = began_from(config, best.node)
    if began in config.local_models:
        found.append(Contender(f"{began}, from which it began", began, optional=True))
    return found


def load_all(
    contenders: Sequence[Contender], config: Config, temperature: float, say: Callable[[str], None]
) -> dict[str, LanguagePolicy | EndpointPolicy]:
    """The contenders' policies by their labels. `say`: hears of an optional one that cannot be loaded. Raises
    `UserError`."""
    from shoal.policy.decoders.base import Sampling  # torch, only now
    from shoal.policy.fetch import resolve
    from shoal.runs.models import build_policy

    policies: dict[str, LanguagePolicy | EndpointPolicy] = {}
    for contender in contenders:
        source = contender.source
        try:
            policy: Any = build_policy(config, source if is_endpoint(source) else resolve(source))
        except UserError as error:
            if not contender.optional:
                raise
            say(f"without {contender.label}: {error}")
            continue
        policy.sampling = Sampling(temperature, config.policy.top_p, int(config.policy.max_completion_length))
        policies[contender.label] = policy
    return policies


def form_of(config: Config, task: str | None) -> Question:
    """A question of the task that is called so, or of the first: what is asked has its system prompt and examples.

    Raises `UserError` if there is no such task."""
    from shoal.tasks import Tasks  # takes a second
    from shoal.tasks.suites import specs_of

    specs = {spec.name: spec for spec in reversed(specs_of(config.tasks))}
    name = task or list(specs)[-1]
    if name not in specs:
        raise UserError(f"there is no task {task!r}; {nearest(name, specs)}")
    only = config.tasks.model_copy(update={"sources": [specs[name]]})
    [question] = Tasks(only).draw(1, "ask")
    if question.turns > 1:
        raise UserError(f"task {name!r} answers back, and `shoal ask` holds no conversations: `shoal watch` shows them")
    return question


def in_form(text: str, form: Question | None) -> Question:
    """`text` as a question, asked as `form` is."""
    asked = Message("user", text)
    if form is None:
        return Question(QuestionId("ask", "1", "", 0, 0), (asked,))
    return msgspec.structs.replace(form, prompt=(*form.prompt[:-1], asked), turns=1)
