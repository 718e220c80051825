"""`shoal validate`: what a task is taken for, whether its scorer gives right answers full marks, and what it gives to
the usual forms of right and wrong answers, and to answers that ignore the question.

    found = validate(TasksConfig(suite="pond"), questions=200, seed=0)
    found["gcd"].gold, found["gcd"].faults      # 1.0: every right answer is right; and what is wrong, for people
"""

from shoal_extras.validation.found import Validated, validate

__all__ = ["Validated", "validate"]
