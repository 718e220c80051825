"""Named suites of tasks, whose parameters are in suites.toml.

`paper`: the nine tasks of arXiv 2509.08721. `pond`: eight easy ones that a model of a million parameters can learn.
`tagged`: those of `pond` with the answer between tags, which leaves room for other text. `reef`: seven for pretrained
models of 100 to 500 million parameters, with three worked examples. `games`: a game in which an environment answers
back. `pictures`: five about small pictures.
"""

import tomllib
from collections.abc import Collection
from importlib.resources import files

from shoal.config.tasks import PICTURES, TasksConfig, TaskSpec
from shoal.errors import UserError, nearest

# A copy of `reasoning_gym.utils.SYSTEM_PROMPTS["default"]`, whose import takes a second. A test compares them.
SYSTEM_PROMPT = """Given a problem, your task is to answer the question by thinking step-by-step in a clear and specific manner.
Once you have thought about the reasoning process, provide the answer in the following format:
<answer>answer here</answer>
Do not explain your reasoning inside the answer tags, provide only the final answer. When an example is provided, you should strictly follow the format of the output/answer in that example.
"""  # noqa: E501

_PARAMETERS = tomllib.loads((files("shoal.tasks") / "suites.toml").read_text("utf-8"))


def _specs(suite: str, **settings: str | int) -> list[TaskSpec]:
    tasks = _PARAMETERS[suite].items()
    return [TaskSpec.model_validate({"name": name, "parameters": values, **settings}) for name, values in tasks]


SUITES: dict[str, list[TaskSpec]] = {
    "pond": _specs("pond"),
    "tagged": _specs("pond", answer="tag"),
    "reef": _specs("reef", examples=3),
    "games": _specs("games"),
    PICTURES: _specs(PICTURES),
    "paper": _specs("paper", answer="tag", system_prompt=SYSTEM_PROMPT),
}


def specs_of(config: TasksConfig) -> list[TaskSpec]:
    """The tasks of `config`: those it lists itself, otherwise those of its suite, or `only` some of them. Raises
    `UserError` for a suite that there is not, and a task that it does not have."""
    if config.sources:
        return [_as_asked(spec, config, spec.form) for spec in config.sources]
    if config.suite not in SUITES:
        raise UserError(f"no suite {config.suite!r}; {nearest(config.suite, SUITES)}")
    specs = SUITES[config.suite]
    names = [spec.name for spec in specs]
    for name in config.only:
        if name not in names:
            raise UserError(f"no task {name!r} in the suite {config.suite!r}; {nearest(name, names)}")
    return [_as_asked(spec, config) for spec in specs if not config.only or spec.name in config.only]


def _as_asked(spec: TaskSpec, config: TasksConfig, own: Collection[str] = ()) -> TaskSpec:
    """`spec` with the examples and the form of answers that `config` gives to all tasks; what is its `own` stays."""
    given = {"examples": config.examples, "answer": config.answer}
    return spec.model_copy(update={name: value for name, value in given.items() if value != "task" and name not in own})
