"""Named suites of tasks.

`paper`: the nine tasks of arXiv 2509.08721, with the parameters of its authors' public recipe (GenRL 0.1.4 to 0.3.0;
the paper itself gives none). `pond`: nine easy ones that a model of a million parameters can learn. `tide`: seven other
easy ones, on which hyper-parameters are chosen, so that what is reported on `pond` was not. `tagged`: those of `pond`
with the answer between tags, so that there is room for other text.
"""

from __future__ import annotations

from typing import Any

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError, nearest

# A copy of `reasoning_gym.utils.SYSTEM_PROMPTS["default"]`, whose import takes a second. A test compares them.
SYSTEM_PROMPT = """Given a problem, your task is to answer the question by thinking step-by-step in a clear and specific manner.
Once you have thought about the reasoning process, provide the answer in the following format:
<answer>answer here</answer>
Do not explain your reasoning inside the answer tags, provide only the final answer. When an example is provided, you should strictly follow the format of the output/answer in that example.
"""  # noqa: E501

_PAPER: dict[str, dict[str, Any]] = {
    "arc_1d": {"min_size": 10, "max_size": 30, "num_train": 3},
    "basic_arithmetic": {
        "min_terms": 2,
        "max_terms": 6,
        "min_digits": 1,
        "max_digits": 4,
        "operators": ["+", "-", "*", "/"],
        "allow_parentheses": True,
        "allow_negation": True,
        "format_style": "natural",
        "whitespace": "single",
    },
    "base_conversion": {"min_base": 2, "max_base": 16, "min_value": 0, "max_value": 1000},
    "bf": {"difficulty": 1},
    "binary_matrix": {"min_n": 3, "max_n": 10, "p_zero": 0.25},
    "calendar_arithmetic": {
        "year": 2023,
        "tasks": ["count_days", "weekday_of_date", "is_leap_year", "recurring_event_day"],
        "offset_upper_bound": 100,
        "leap_year_range": 200,
    },
    "decimal_arithmetic": {
        "min_terms": 2,
        "max_terms": 6,
        "min_num_decimal_places": 1,
        "max_num_decimal_places": 3,
        "precision": 5,
    },
    "fraction_simplification": {
        "min_value": 1,
        "max_value": 100,
        "min_factor": 2,
        "max_factor": 100,
        "styles": ["plain", "latex_frac", "latex_dfrac"],
    },
    "propositional_logic": {
        "min_vars": 2,
        "max_vars": 4,
        "min_statements": 2,
        "max_statements": 4,
        "min_complexity": 1,
        "max_complexity": 3,
    },
}

_POND: dict[str, dict[str, Any]] = {
    "base_conversion": {"min_base": 2, "max_base": 4, "min_value": 0, "max_value": 20},
    "basic_arithmetic": {
        "min_terms": 2,
        "max_terms": 2,
        "min_digits": 1,
        "max_digits": 1,
        "allow_parentheses": False,
        "allow_negation": False,
        "format_style": "simple",
    },
    "calendar_arithmetic": {"tasks": ["is_leap_year"]},
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "count_bits": {"min_n": 1, "max_n": 255},
    "fraction_simplification": {
        "min_value": 1,
        "max_value": 9,
        "min_factor": 1,
        "max_factor": 9,
        "styles": ["plain"],
    },
    "gcd": {"min_value": 1, "max_value": 20},
    "lcm": {"min_value": 1, "max_value": 12},
    "simple_equations": {
        "min_terms": 2,
        "max_terms": 2,
        "min_value": 1,
        "max_value": 9,
        "operators": ["+", "-"],
        "operators_weights": [0.5, 0.5],
    },
}

_TIDE: dict[str, dict[str, Any]] = {
    "products": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "letter_counting": {"min_words": 1, "max_words": 1},
    "spell_backward": {"min_word_len": 3, "max_word_len": 4},
    "prime_factorization": {"min_value": 2, "max_value": 30},
    "count_primes": {"min_n": 1, "max_n": 30},
    "decimal_chain_sum": {
        "min_terms": 2,
        "max_terms": 2,
        "min_digits": 1,
        "max_digits": 1,
        "min_decimal_places": 1,
        "max_decimal_places": 1,
    },
    "leg_counting": {"min_animals": 1, "max_animals": 1, "min_instances": 1, "max_instances": 5},
}

SUITES: dict[str, list[TaskSpec]] = {
    "pond": [TaskSpec(name=name, parameters=parameters) for name, parameters in _POND.items()],
    "tide": [TaskSpec(name=name, parameters=parameters) for name, parameters in _TIDE.items()],
    "tagged": [TaskSpec(name=name, parameters=parameters, answer="tag") for name, parameters in _POND.items()],
    "paper": [
        TaskSpec(name=name, parameters=parameters, answer="tag", system_prompt=SYSTEM_PROMPT)
        for name, parameters in _PAPER.items()
    ],
}


def suite(name: str) -> list[TaskSpec]:
    """The tasks of the suite `name`. Raises `UserError` if there is none of that name."""
    if name not in SUITES:
        raise UserError(f"no suite {name!r}; {nearest(name, SUITES)}")
    return SUITES[name]


def specs_of(config: TasksConfig) -> list[TaskSpec]:
    """The tasks of `config`: those it lists itself, otherwise those of its suite, or `only` some of them. Raises
    `UserError` for a name that the suite does not have."""
    if config.tasks:
        return config.tasks
    specs = suite(config.suite)
    names = [spec.name for spec in specs]
    for name in config.only:
        if name not in names:
            raise UserError(f"no task {name!r} in the suite {config.suite!r}; {nearest(name, names)}")
    return [spec for spec in specs if not config.only or spec.name in config.only]
