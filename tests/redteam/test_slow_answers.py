"""Answers that are made to be slow to score, up to 4096 characters, for every task there is.

A node examines strangers' messages within a budget of processor time. A message costs no more than that, whatever
stands in it; the scorers named in `FAST` answer within it; and the next honest message is scored right and at once.
`python tests/redteam/test_slow_answers.py` measures every task with every text, and names the slowest of each.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator

import pytest
from reasoning_gym.factory import DATASETS

from shoal.config import TasksConfig, TaskSpec
from shoal.rollout import QuestionId
from shoal.tasks import Tasks
from shoal.tasks.examiner import Candidate, Examiner
from shoal.tasks.process import WorkerProcess
from shoal.tasks.reasoning import HASHED, NOT_TASKS
from shoal.tasks.wire import Job, Result

KEY = ("reef", "c0ffee", 7)
BUDGET = 0.1
"""Seconds of processor time for a message."""


def bombs(n: int) -> dict[str, str]:
    """Texts of up to `n` characters that make one scorer or another work hard."""

    def many(piece: str, joint: str = "") -> str:
        return joint.join([piece] * (n // len(piece + joint)))

    power = "((9**99)**99)**32%((7**99)**99)**18"
    texts = {
        "powers in a list": f"[{many(power, ',')}]",
        "a power": power,
        "products of powers": many("9**999", "*"),
        "divided powers": many("(9**99)**99//7**99", ","),
        "shifts": many("(1<<9999)*(1<<9999)", "%"),
        "a tower": "9**9**9**9",
        "digits": "9" * n,
        "digits within the limit": "9" * min(n, 4300),
        "hex": "0x" + "f" * (n - 2),
        "exponent": "1E+999999999999999999",
        "negative exponent": "1e-999999999999999999",
        "middle exponent": "1e9999999",
        "fraction": "1/3e9999999",
        "many exponents": many("1E+99999999", ","),
        "zeros": "0." + "0" * (n - 3) + "1",
        "open brackets": "[" * n,
        "brackets": "[" * (n // 2) + "]" * (n // 2),
        "parentheses": "(" * (n // 2) + "1" + ")" * (n // 2 - 1),
        "braces": "{" * n,
        "minus": "-" * (n - 1) + "1",
        "plus": "1" + "+1" * ((n - 1) // 2),
        "times x": "x" + "*x" * ((n - 1) // 2),
        "sum of functions": "+".join(f"sin({i}*x)" for i in range(n // 12)),
        "product of sums": "*".join(f"(x+{i})" for i in range(n // 8)),
        "power of a sum": many("(x+C+1)**99", "*"),
        "nested powers": "x" + "**x" * ((n - 1) // 3),
        "nested functions": "sin(" * (n // 5) + "x" + ")" * (n // 5),
        "nested exp": "exp(" * (n // 5) + "9" + ")" * (n // 5),
        "nested roots": "sqrt(1+" * (n // 8) + "x" + ")" * (n // 8),
        "few roots": "sqrt(1+" * 6 + "x" + ")" * 6,
        "mixed functions": many("sin(x)**9*cos(x)**9*tan(x)/log(x)", "+"),
        "trigonometry": "*".join(f"(sin({i}*x)+cos({i}*x))**{i}" for i in range(2, 2 + n // 28)),
        "algebraic": many("(x**7+x+1)**(1/7)", "/"),
        "rational": "+".join(f"1/(x**{i}+{i})" for i in range(n // 14)),
        "harmonic": "+".join(f"1/{i}" for i in range(10001, 10001 + n // 8)),
        "fractions of powers": "+".join(f"{i}/7**9{i}" for i in range(n // 9)),
        "root of a number": many("(10**99+1)**(1/97)", "*"),
        "sine of a power": many("sin(10**99)", "+"),
        "logarithms": many("log(2**99+1)", "*"),
        "factors": many("99999999999", "×"),
        "small factors": many("7", "×"),
        "letters": "∧".join("abcdefghijklmnopqrstuvwxyz"[: min(26, n // 2)]),
        "many letters": "∨".join(f"v{i}" for i in range(n // 6)),
        "not": "¬" * (n - 1) + "P",
        "and": many("P", "∧"),
        "implies": many("P∧Q", "→"),
        "nested logic": "(P∧" * (n // 5) + "P" + ")" * (n // 5),
        "nested logic, right": "(" * (n // 5) + "P" + "∧P)" * (n // 5),
        "spaces": " " * (n - 1) + "x",
        "inner spaces": "a" + " " * (n - 2) + "b",
        "lines": "x" + "\n" * (n - 2) + "x",
        "letters a": "a" * n,
        "numbers": many("1", " "),
        "numbers in lines": many("1 1 1 1", "\n"),
        "commas": "," * n,
        "pairs": many("A=1", ","),
        "dots": "." * n,
        "slashes": "1" + "/1" * ((n - 1) // 2),
        "colons": many("99:99", ":"),
        "backslashes": "\\frac{" * (n // 6),
        "latex": "\\frac{" + " " * (n // 2) + "1" + " " * (n // 2 - 9) + "x",
        "json list": "[" + many("[1]", ",") + "]",
        "json strings": "[" + many('"fill A"', ",") + "]",
        "json pour": "[" + many('"pour A->B"', ",") + "]",
        "json dictionaries": "{" + ",".join(f'"{i}":{{}}' for i in range(n // 10)) + "}",
        "json nested": '{"a":' * (n // 6),
        "json deep": '{"a":' * (n // 7) + "1" + "}" * (n // 7),
        "json words": "[" + ",".join(f'"w{i}"' for i in range(n // 8)) + "]",
        "json exponents": "[" + many("1e999", ",") + "]",
        "json moves": "[" + many('"w,A1,B3"', ",") + "]",
        "json boxes": '[{"Agent[0.5, 0.5]":"move(' + "a, " * (n // 4) + '"}]',
        "rush": "A+999999999999999999",
        "many rush": many("A+1A-1", " "),
        "long rush": many("A+99999", " "),
        "cube": many("U R F", " "),
        "cube, counted": "U999999999",
        "cube, many counted": many("U9999", " "),
        "sokoban": many("UDLR"),
        "lock": many("ABC"),
        "hanoi": "\n".join(["Move disk 1 from Peg 1 to Peg 2", "Move disk 1 from Peg 2 to Peg 1"] * (n // 64)),
        "hanoi, digits": "Move disk " + "1" * (n - 10),
        "hanoi, repeated": many("Move disk 1"),
        "roles": many("Zoey is a knight", ", "),
        "words": many("COLD", ","),
        "path": many("up ", ""),
        "complex": "(" * (n // 2) + ")" * (n // 2),
        "complex, signs": "-" * (n - 2) + "1i",
        "one after the other": many("1-", ""),
        "emoji": "\U0001f41f" + "\ufe0f" * (n - 1),
        "answer tags": many("<answer>"),
        "quotes": "'" * n,
        "dates": many("2020-01-01 ", ""),
        "moves": many("Z+9", ","),
    }
    return {name: text[:n] if name != "a power" else text for name, text in texts.items()}


def measure(names: list[str], size: int, limit: float) -> Iterator[tuple[str, str, float]]:
    """The seconds of processor time that each task's scorer takes for each text; `limit` where it takes more."""
    for name in names:
        config = TasksConfig(tasks=[TaskSpec(name=name)])
        question = Tasks(config).draw(1, *KEY)[0].id
        worker = WorkerProcess(config)
        for kind, text in bombs(size).items():
            worker.submit([Job(question, text)])
            worker.result(60.0)  # the question
            begun = worker.processor_seconds
            try:
                assert isinstance(worker.result(limit), Result)
                yield name, kind, worker.processor_seconds - begun
            except TimeoutError:
                yield name, kind, limit
            except EOFError:
                yield name, f"{kind} (CRASH)", limit
        worker.close()


if __name__ == "__main__":
    size, limit, *chosen = sys.argv[1:]
    for task in chosen or sorted(DATASETS.keys() - NOT_TASKS - HASHED):
        found = sorted(measure([task], int(size), float(limit)), key=lambda row: -row[2])
        worst = ", ".join(f"{kind} {1000 * seconds:.1f} ms" for _, kind, seconds in found[:4])
        print(f"{task}: {worst}", flush=True)
