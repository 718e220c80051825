"""Answers that are made to be slow to score, for every task whose scorer does more than compare.

A node examines strangers' messages within a budget of processor time. A message costs no more than that, whatever
stands in it; the scorers in `FAST` need no more for any text; and the next honest message is scored right.
`python tests/extras/redteam/test_slow_answers.py 4096 1.0` measures every task with every text of 4096 characters,
up to a second each, and names the slowest of each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from reasoning_gym.factory import DATASETS

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.sandbox.examiner import Candidate, Examiner, Verdict
from shoal.sandbox.pipes import Job
from shoal.sandbox.process import COMMAND, GuardedProcess
from shoal.tasks import Tasks, slot_seed
from shoal.tasks.reasoning import HASHED, NOT_TASKS

KEY = ("reef", "c0ffee", 7)
BUDGET, PATIENCE = 0.1, 2.0
"""Seconds of processor time for a message: at first, and for those that were slow."""
SLACK = 0.05
"""Seconds that a process may have worked on before it is ended."""
MESSAGES = 10
"""Of each kind, each from another key."""
ANSWERS, CHARACTERS = 64, 200
"""Of a message of 16.7 KB."""

FAST = (
    *("binary_matrix", "spiral_matrix", "string_insertion", "n_queens", "propositional_logic", "rush_hour"),
    *("complex_arithmetic", "decimal_arithmetic", "decimal_chain_sum", "bitwise_arithmetic", "coin_flip"),
    *("chain_sum", "fraction_simplification", "prime_factorization", "calendar_arithmetic"),
)
"""Scorers that no text holds up."""
BUDGETED = (
    "puzzle24",
    "countdown",
    "simple_integration",
    "intermediate_integration",
    "rubiks_cube",
    "boxnet",
)
"""Scorers that a text may hold up, for as long as the budget lasts."""
WORST = {
    "binary_matrix": "powers in a list",
    "spiral_matrix": "powers in a list",
    "string_insertion": "a power",
    "n_queens": "powers in a list",
    "propositional_logic": "letters",
    "puzzle24": "root of a number",
    "countdown": "product of sums",
    "simple_integration": "nested roots",
    "intermediate_integration": "right, but long",
    "rush_hour": "exponent",
    "rubiks_cube": "cube, many counted",
    "coin_flip": "exponent",
}
"""The text that each was slowest for before there were bounds, some for ever."""


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


CONFIG = TasksConfig(sources=[TaskSpec(name=name) for name in (*FAST, *BUDGETED)])


class Lane:
    """What admission does with a message: a short look, and a patient one for what that was too short for."""

    def __init__(self) -> None:
        self.tasks = Tasks(CONFIG)
        self.quick, self.patient = Examiner(CONFIG), Examiner(CONFIG)

    def candidate(self, task: str, slot: int, texts: list[str]) -> Candidate:
        """What the key is drawn in `slot`, if it is of `task`."""
        made = next(made for made in self.tasks.tasks if made.name == task)
        seed = slot_seed(KEY, slot, task)
        for index in range(1000):
            question = made.question(seed, index)
            if not self.tasks.is_held_out(question):
                return Candidate(question.id, question.hash, KEY, slot, tuple(texts))
        raise AssertionError

    def quick_slot(self, task: str) -> int:
        """A slot with a question that is soon made."""
        return min(range(8), key=lambda slot: self.patient.examine(self.candidate(task, slot, ["1"]), 60.0).seconds)

    def right(self, candidate: Candidate) -> str:
        task, _ = self.tasks.lookup(candidate.question)
        entry = task.entry(candidate.question.seed, candidate.question.index)  # type: ignore[attr-defined]
        return str(entry["answer"] or entry["metadata"].get("example_answer"))

    def admit(self, candidate: Candidate) -> Verdict:
        verdict = self.quick.examine(candidate, BUDGET)
        return self.patient.examine(candidate, PATIENCE) if "slow" in verdict.reason else verdict

    def attack(self, task: str, kind: str, slot: int, patient: bool = False) -> Verdict:
        """A message of as many answers as there may be, no two alike."""
        candidate = self.candidate(task, slot, [])
        text = self.ugly(candidate) if kind == "right, but long" else bombs(CHARACTERS)[kind]
        texts = tuple(text + " " * n for n in range(ANSWERS))
        message = Candidate(candidate.question, candidate.question_hash, KEY, slot, texts)
        return self.patient.examine(message, PATIENCE) if patient else self.quick.examine(message, BUDGET)

    def ugly(self, candidate: Candidate) -> str:
        """The right answer with much beside it that is nothing, which only symbolic simplification finds out."""
        nothing = "(sin(x+1)*cos(x)-cos(x+1)*sin(x)-sin(1))"
        return "+".join([self.right(candidate), *(f"{i}*{nothing}**{i}*x**{i}" for i in range(3, 5))])


@pytest.fixture(scope="module")
def lane() -> Iterator[Lane]:
    lane = Lane()
    yield lane
    lane.quick.close()
    lane.patient.close()


@pytest.mark.parametrize("task", [*FAST, *BUDGETED])
def test_no_message_costs_more_than_its_budget(task: str, lane: Lane) -> None:
    slot = lane.quick_slot(task)
    for kind in bombs(CHARACTERS):
        verdict = lane.attack(task, kind, slot)
        assert verdict.seconds <= BUDGET + SLACK
        if task in FAST:
            if verdict.reason == "slow":  # a busy machine's processor is slower, too
                verdict = lane.attack(task, kind, slot, patient=True)
            assert (kind, verdict.reason) == (kind, "")
            assert not any(reward == 1.0 for reward in verdict.rewards)
        else:
            assert verdict.reason in ("", "slow", "slow question")


@pytest.mark.parametrize(("task", "kind"), WORST.items())
def test_honest_answers_are_scored_right_after_an_attack(task: str, kind: str, lane: Lane) -> None:
    for slot in range(MESSAGES):
        assert lane.attack(task, kind, slot).seconds <= BUDGET + SLACK
    for honest in ("chain_sum", "countdown", "simple_integration", "n_queens"):
        candidate = lane.candidate(honest, 1, [])
        texts = (lane.right(candidate), "7", "so")
        verdict = lane.admit(Candidate(candidate.question, candidate.question_hash, KEY, 1, texts))
        assert (verdict.reason, verdict.rewards) == ("", (1.0, 0.0, 0.0))
        assert verdict.seconds <= PATIENCE


def measure(names: list[str], size: int, limit: float) -> Iterator[tuple[str, str, float]]:
    """The seconds of processor time that each task's scorer takes for each text; `limit` where it takes more."""
    for name in names:
        config = TasksConfig(sources=[TaskSpec(name=name)])
        question = Tasks(config).draw(1, *KEY)[0].id
        worker = GuardedProcess(COMMAND, config.model_dump(mode="json"))
        for kind, text in bombs(size).items():
            worker.send([Job(question, text)])
            worker.receive(60.0)  # the question
            begun = worker.processor_seconds
            try:
                worker.receive(limit)
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
