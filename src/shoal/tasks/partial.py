"""Whether a task of reasoning-gym 0.1.25 gives partial credit, and for what: read from its scorers, task by task.

It matters: credit for a wrong answer makes a group of wrong answers look as if it carried something to learn.
"""

from __future__ import annotations

SUBSTRING = "len(gold) / len(answer) where the right answer stands inside a longer one"
UNKNOWN = "as the task's own scorer gives it"

PARTIAL_CREDIT: dict[str, str] = {
    "arc_1d": SUBSTRING,
    "base_conversion": SUBSTRING,
    "basic_arithmetic": SUBSTRING,
    "bf": SUBSTRING,
    "binary_matrix": "0.1 for the right matrix as a Python list of lists",
    "calendar_arithmetic": "0.1 for a wrong weekday (0.05 if its case is wrong); exp(-5 relative error) for numbers",
    "chain_sum": SUBSTRING,
    "count_bits": SUBSTRING,
    "decimal_arithmetic": "",
    "fraction_simplification": (
        "0.1 for a fraction with the question's own numerator or denominator, 0.05 for any other, 0.01 for anything"
    ),
    "gcd": SUBSTRING,
    "lcm": SUBSTRING,
    "propositional_logic": "0.25 for a tautology, 0.05 for any other formula of the right letters that does not follow",
    "simple_equations": SUBSTRING,
}


def partial_credit_of(task: str, *, inherited: bool) -> str:
    """One line; empty: right or nothing. `inherited`: the task has reasoning-gym's default scorer, none of its own."""
    if task in PARTIAL_CREDIT:
        return PARTIAL_CREDIT[task]
    return SUBSTRING if inherited else UNKNOWN
