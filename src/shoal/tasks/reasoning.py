"""The tasks of reasoning-gym (https://github.com/open-thought/reasoning-gym).

The question `(seed, index)` is `reasoning_gym.create_dataset(name, seed=seed, **parameters)[index]`. Most datasets make
item `index` from `Random(seed + index)` alone, so that one dataset made with seed 0 gives all items. The few that do
not are in `PER_SEED` and have one dataset for each seed.

A scorer that takes more than linear time is slow for a text made for it. For those that a few characters can hold up
for seconds, the number of steps is estimated here, in linear time, and answers that need too many score 0 unread. No
right answer is among them.
"""

import dataclasses
import decimal
import functools
import importlib.metadata
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import reasoning_gym
from reasoning_gym.factory import DATASETS

from shoal.config.own_code import offered
from shoal.errors import UserError, nearest
from shoal.rollout import Message, Question, QuestionId, hash_of
from shoal.tasks.larger import Larger
from shoal.tasks.task import MAX_INDEX

MAX_STEPS = 1000
"""Steps of a car (rush_hour) or turns of a cube (rubiks_cube). Solutions have 200 at most."""
MAX_DIGITS = 3
"""Digits of an exponent: a coin's probability has none, and 1e1000 is a number of a thousand digits."""
MAX_READ = 5000
"""Steps of reading or trying a formula (propositional_logic), unless the question itself needs more."""


def is_too_much(task: str, answer: str, entry: Mapping[str, Any]) -> bool:
    """Whether the scorer of reasoning-gym's `task` would take too long for `answer`."""
    check = _CHECKS.get(task)
    return check is not None and check(answer, entry["metadata"])


def _rush_hour(answer: str, _: Mapping[str, Any]) -> bool:
    return _total(re.findall(r"[A-Z][+-](\d+)", answer)) > MAX_STEPS


def _rubiks_cube(answer: str, _: Mapping[str, Any]) -> bool:
    # "U3" is three turns
    words = (re.fullmatch(r"[^\d]*(\d*)", word) for word in answer.split())
    return _total([word[1] or "1" for word in words if word]) > MAX_STEPS


def _coin_flip(answer: str, _: Mapping[str, Any]) -> bool:
    # the scorer takes commas out
    exponents = re.findall(r"[eE][+-]?([\d_]+)", answer.replace(",", ""))
    return any(len(exponent) > MAX_DIGITS for exponent in exponents)


def _propositional_logic(answer: str, metadata: Mapping[str, Any]) -> bool:
    """Its scorer reads the rest of a text again at each sign, and tries all assignments to the variables of premises
    and answer, whatever their names."""
    own = metadata["premises"]
    longest = max(own, key=len)
    return any(
        steps([*own, answer]) > max(MAX_READ, 2 * steps([*own, longest])) for steps in (_reading_steps, _trying_steps)
    )


def _reading_steps(formulas: list[str]) -> int:
    return sum((len(_parts(formula)) - 1) * len(formula) for formula in formulas)


def _trying_steps(formulas: list[str]) -> int:
    parts = [part for formula in formulas for part in _parts(formula)]
    variables = {part.strip() for part in parts} - {""}
    return (1 << len(variables)) * len(parts)


def _parts(formula: str) -> list[str]:
    """The texts between the signs."""
    return re.split("[∧∨¬→↔()]", formula)


def _total(numbers: list[str]) -> int:
    """The sum of numbers in digits, any of which may be long."""
    return sum(int(number) if len(number) <= 9 else MAX_STEPS + 1 for number in numbers)


_CHECKS: dict[str, Callable[[str, Mapping[str, Any]], bool]] = {
    "rush_hour": _rush_hour,
    "rubiks_cube": _rubiks_cube,
    "coin_flip": _coin_flip,
    "propositional_logic": _propositional_logic,
}


ADAPTER_VERSION = 1
VERSION = f"{importlib.metadata.version('reasoning-gym')}+{ADAPTER_VERSION}"

PER_SEED = frozenset({"acre", "gsm_symbolic", "list_functions", "pool_matrix", "word_ladder"})
"""Tasks whose items depend on more than seed + index (a choice at construction, a size, numpy's 32-bit seed).
Their seed is taken modulo 2**32 - MAX_INDEX, so that seed + index has 32 bits."""

HASHED = frozenset({"isomorphic_strings", "list_functions", "polynomial_multiplication", "ransom_note"})
"""Tasks that iterate over sets: their questions differ between processes unless PYTHONHASHSEED is 0."""

NOT_TASKS = frozenset({"codeio", "composite"})
"""`codeio` runs programs that draw random numbers: its right answers differ between processes."""


class ReasoningTask:
    """A task of reasoning-gym. Raises `UserError` for a name or a parameter that it does not have."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        names = DATASETS.keys() - NOT_TASKS
        if name not in names:
            known = {*names, Larger.name, *offered("shoal.tasks")}
            raise UserError(f"no task {name!r} in reasoning-gym {VERSION}; {nearest(name, known)}")
        if name in HASHED and sys.flags.hash_randomization:
            raise UserError(f"task {name!r} makes other questions in every process: set PYTHONHASHSEED=0, on all nodes")
        allowed = {field.name for field in dataclasses.fields(DATASETS[name][1])} - {"seed", "size"}
        for parameter in parameters:
            if parameter not in allowed:
                raise UserError(f"task {name!r} has no parameter {parameter!r}; {nearest(parameter, allowed)}")
        self.name = name
        self.version = VERSION
        self._parameters = dict(parameters)
        try:
            self._dataset = self._make(0)
        except (AssertionError, TypeError, ValueError, LookupError, OSError) as error:
            raise UserError(f"task {name!r} refuses its parameters: {error}") from error
        resolved = dataclasses.asdict(self._dataset.config)
        self.config = hash_of({key: value for key, value in resolved.items() if key in allowed})
        # Answers to one question come one after another, so its entry is made once. Cached by instance, not by class.
        self.entry = functools.lru_cache(maxsize=64)(self._entry)
        self._per_seed = functools.lru_cache(maxsize=8)(self._make)

    def question(self, seed: int, index: int) -> Question:
        """Question `index` under `seed`."""
        identity = QuestionId(self.name, self.version, self.config, seed, index)
        return Question(identity, (Message("user", self.entry(seed, index)["question"]),))

    def answer(self, question: QuestionId) -> str | None:
        """The right answer; None if the question has no single one."""
        return self.entry(question.seed, question.index)["answer"] or None  # base_conversion says that zero is ""

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        """The scores that reasoning-gym gives to `answers`, partial credit included."""
        entry = self.entry(question.seed, question.index)
        with _own_decimals():
            return [self._score(answer, entry) for answer in answers]

    def _score(self, answer: str, entry: dict[str, Any]) -> float:
        if self.name == "complex_arithmetic" and "nan" in "".join(answer.split()).lower():
            return 0.0  # its scorer gives min(1, nan), which is 1
        if is_too_much(self.name, answer, entry):
            return 0.0
        return float(self._dataset.score_answer(answer, entry))

    def _entry(self, seed: int, index: int) -> dict[str, Any]:
        """reasoning-gym's item: "question", "answer" (None if it names no single right one) and "metadata"."""
        if not 0 <= seed < 2**63 or not 0 <= index <= MAX_INDEX:
            raise ValueError(f"seed {seed} or index {index} out of range")
        with _own_decimals():
            if self.name not in PER_SEED:
                return dict(self._dataset[seed + index])
            return dict(self._per_seed(seed % (2**32 - MAX_INDEX))[index])

    def _make(self, seed: int) -> Any:
        with _own_decimals():
            return reasoning_gym.create_dataset(self.name, seed=seed, size=MAX_INDEX + 1, **self._parameters)


def _own_decimals() -> AbstractContextManager[decimal.Context]:
    """decimal_arithmetic sets the precision of the whole thread: questions would depend on those made before."""
    return decimal.localcontext(decimal.Context())


def _silent(*_arguments: object, **_options: object) -> None:
    """In place of `print`."""


for _name, _module in list(sys.modules.items()):
    # `bf` prints dots and `codeio` its errors while they make a question. (redirect_stdout would be every thread's.)
    if _name.startswith("reasoning_gym.code."):
        vars(_module)["print"] = _silent
