"""`shoal validate`: what a task is taken for, whether its scorer gives right answers full marks, and what it gives to
the usual forms of right and wrong answers, and to answers that ignore the question.

    found = validate(TasksConfig(suite="pond"), questions=200, seed=0)
    found["gcd"].gold                     # 1.0: every right answer is right
    found["gcd"].constant                 # the best one answer to all questions
    found["gcd"].forms["bold"].mean       # what right answers in bold get
    found["gcd"].faults                   # what is wrong, for people; empty if nothing is

A task whose right answers are not right cannot be learned; one that gives much to wrong answers teaches these.
"""

from shoal_extras.validation.found import Validated, validate

__all__ = ["Validated", "validate"]
