"""Runs a stranger's program with its tests in Monty, an interpreter of Python with nothing of the system within reach.

    run("def f(x): return x + 1", ["assert f(1) == 2"])        # 1: the tests that it passes
    run("import heapq", ["assert f(1) == 2"])                   # raises NoVerdict("unsupported")

Monty (pydantic-monty) works in a process of its own, which this one starts at the first program. All limits that can
make a program wrong are counts, the same on every node. A clock ends what they do not, and that is no verdict. Nor is
there one for a program that fails because Monty lacks something that Python has: in doubt it is not called wrong.
"""

import ast
import atexit
import builtins
import datetime
import importlib.metadata
import os
import re
import secrets
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence
from typing import Any, Final

from shoal.errors import UserError
from shoal.tasks.task import Failed, NoVerdict
from shoal_extras.programs.rewrite import checked, counted, defined, secret

STEPS: Final = 300_000
"""Turns of loops and calls of functions, of a program with its tests, unless the right answer needs many."""
MOST_COUNTED: Final = 10_000_000
"""Steps of a right answer that are counted."""
MEMORY: Final = 64 * 2**20
"""Bytes."""
OUTPUT: Final = 2**16
"""Bytes that are printed."""
DEPTH: Final = 1000
"""Calls within each other."""
SECONDS = 10.0
"""By the clock, for the program and for each test. STEPS take about a tenth of a second."""
MOST_CHARACTERS: Final = 20_000
"""Of a program with what stands before it."""
RULES_VERSION: Final = 4
"""Another one whenever a program may get another verdict."""

_TOO_MUCH: Final = 10**15
"""Bytes that the counter of steps asks for at the end: no program can catch what follows."""
_TICK: Final = "t" + secrets.token_hex(8)
_PLAIN: Final = "p" + secrets.token_hex(8)
_PREFIX: Final = "b" + secrets.token_hex(8) + "_"
"""Names that no program can know."""
_SAVED: Final = (
    *("abs", "all", "any", "bool", "dict", "enumerate", "filter", "float", "frozenset", "int", "isinstance", "len"),
    *("list", "map", "max", "min", "pow", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple"),
    *("type", "zip"),
)
"""Builtins that a test may call."""
_BEFORE: Final = f"""
{_TICK}_name = "builtins"
def {_TICK}():
    global {_TICK}_left
    {_TICK}_left -= 1
    if {_TICK}_left < 0:
        "x" * {_TOO_MUCH}
    return True
{"; ".join(f"{_PREFIX}{name} = {name}" for name in _SAVED)}
from collections import deque as {_PREFIX}deque
import datetime as {_PREFIX}datetime
{_PREFIX}many = ({_PREFIX}list, {_PREFIX}tuple, {_PREFIX}set, {_PREFIX}frozenset, {_PREFIX}deque)
{_PREFIX}flat = ({_PREFIX}int, {_PREFIX}float, {_PREFIX}bool, {_PREFIX}str, {_PREFIX}type(None), {_PREFIX}type(b""),
    {_PREFIX}type(1j), {_PREFIX}type(range(1)), {_PREFIX}datetime.date, {_PREFIX}datetime.datetime,
    {_PREFIX}datetime.timedelta)
def {_PLAIN}(value):
    kind = {_PREFIX}type(value)
    if kind in {_PREFIX}flat:
        return value
    if kind is {_PREFIX}dict:
        for one in value.items():
            {_PLAIN}(one)
        return value
    if not {_PREFIX}isinstance(value, {_PREFIX}many):
        raise AssertionError("not plain data")
    for one in value:
        {_PLAIN}(one)
    return value
def locals(*values, **named):
    raise NotImplementedError("locals, exec and eval are not supported")
exec = eval = locals
None
"""
"""Counts steps; keeps a program from listing and changing the names in use here; refuses what is not plain data, such
as an object that says of itself that it equals everything."""
_POLICY: Final = {"datetime": datetime.datetime(2026, 1, 1), "sleep": "zero", "random_start": {"seed": 0}}


def load() -> str:
    """The version of the interpreter and of these rules: another one may give other verdicts. It imports Monty, since
    within the guard nothing can be imported. Raises `UserError` if it is not installed."""
    try:
        import pydantic_monty  # noqa: F401
    except ImportError as error:
        raise UserError("tasks whose answers are programs need Monty: pip install 'shoal[code]'") from error
    return f"monty {importlib.metadata.version('pydantic-monty')}+{RULES_VERSION}"


def run(program: str, tests: Sequence[str], setup: str = "", steps: int = STEPS) -> int:
    """How many of `tests` a program passes. `setup`: what stands before the program, for tests to call. Raises `Failed`
    and `NoVerdict`."""
    return _run(program, tests, setup, steps)[0]


def steps_of(program: str, tests: Sequence[str], setup: str = "") -> int:
    """The steps that a program takes with all its tests. Raises as `run`."""
    return _run(program, tests, setup, MOST_COUNTED)[1]


def _run(program: str, tests: Sequence[str], setup: str, steps: int) -> tuple[int, int]:
    """The tests that are passed, and the steps that were taken."""
    if len(program) > MOST_CHARACTERS:
        raise Failed("too long")
    import pydantic_monty

    try:
        ready = counted(program, _TICK)
    except ValueError:
        ready = ""
    limits: Any = {"max_feed_duration_secs": SECONDS, "max_memory": MEMORY, "max_recursion_depth": DEPTH}
    policy: Any = _POLICY
    printed = pydantic_monty.CollectString(OUTPUT)
    passed = 0
    try:
        with _sandbox().checkout(limits=limits, os_policy=policy, assert_message_annotations=False) as session:
            session.feed_run(f"{_TICK}_left = {steps}\n{_BEFORE}")
            saved = {*_SAVED, *_set_up(session, setup)}
            try:
                session.feed_run(f"{ready}\nNone" if ready else f"raise ValueError\n{program}", print_callback=printed)
            except pydantic_monty.MontyRuntimeError as error:
                if not ready:  # Monty reads it, but nobody can count its steps
                    raise NoVerdict("unsupported") from None
                _judge(error, program)
                raise Failed("error") from None
            own = defined(tests)
            for test in tests:
                try:
                    session.feed_run(f"{checked(test, _PLAIN, saved, _PREFIX, own)}\nNone", print_callback=printed)
                    passed += 1
                except pydantic_monty.MontyRuntimeError as error:
                    _judge(error, program)
            left = session.feed_run(f"{_TICK}_left")
    except pydantic_monty.MontySyntaxError as error:
        raise (NoVerdict("unsupported", str(error)) if missing(str(error), "") else Failed("no program")) from None
    except pydantic_monty.MontyCrashedError as error:
        raise NoVerdict("timeout" if error.timed_out else "crash") from None
    return passed, steps - int(left)


def _set_up(session: Any, setup: str) -> set[str]:
    """Runs a copy of the functions and imports in `setup` under names that no program can know; returns their names.
    Returns none where the copy does not run: tests then call what the program has."""
    import pydantic_monty

    copy, names = secret(setup, _PLAIN, _SAVED, _PREFIX)
    if names:
        try:
            session.feed_run(f"{counted(copy, _TICK)}\nNone")
        except pydantic_monty.MontyRuntimeError:
            return set()
    return names


def _judge(error: Any, program: str) -> None:
    """Raises `Failed` or `NoVerdict` if `error` is more than a wrong answer to a test."""
    said = str(error).strip().partition("\n")[0]
    kind, _, message = said.partition(": ")
    if kind == "TimeoutError" and "time limit exceeded" in message:
        raise NoVerdict("timeout") from None
    if missing(said, program):
        raise NoVerdict("unsupported", said) from None
    if kind == "MemoryError" and "memory limit" in message:
        asked = message.removeprefix("memory limit exceeded: ").partition(" ")[0]
        steps = asked.isdecimal() and int(asked) >= _TOO_MUCH
        output = message.endswith(f"> {OUTPUT} bytes")
        raise Failed("steps" if steps else "output" if output else "memory") from None
    if kind == "RecursionError":
        raise Failed("recursion") from None
    if kind == "PermissionError" or "is not supported in this environment" in message:
        raise Failed("denied") from None


_pools: dict[int, Any] = {}


def _sandbox() -> Any:
    """This process's own interpreter: a fork cannot use its parent's."""
    pool = _pools.get(os.getpid())
    if pool is None:
        import pydantic_monty

        pool = _pools[os.getpid()] = pydantic_monty.Monty(max_processes=1).__enter__()
        atexit.register(pool.__exit__, None, None, None)
    return pool


_SAYS_SO: Final = re.compile(
    r"not yet support|is not implemented|^NotImplementedError: .* not supported|^TypeError: cannot create '[\w.]+' inst"
)
_NO_MODULE: Final = re.compile(r"^(ModuleNotFoundError|ImportError)\b|^AttributeError: module '")
_NO_NAME: Final = re.compile(r"^NameError: name '(\w+)' is not defined")
_NO_ATTRIBUTE: Final = re.compile(r"^AttributeError: (?:type object )?'([\w.]+)'(?: object)? has no attribute '(\w+)'")
_SEVERAL: Final = (dict, Counter, OrderedDict, defaultdict)
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    **{kind.__name__: (kind,) for kind in vars(builtins).values() if isinstance(kind, type)},
    **{kind.__name__: _SEVERAL for kind in _SEVERAL},
    "deque": (deque,),
    "collections.deque": (deque,),
    "function": (types.FunctionType,),
    "builtin_function_or_method": (types.BuiltinFunctionType, type),
}
"""What the language calls a type, and what it may be in Python."""
_NEVER_CALLED: Final = frozenset(
    "__len__ __bool__ __lt__ __le__ __gt__ __ge__ __ne__ __format__ __reversed__ __getattr__ __getattribute__ "
    "__setattr__ __delattr__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ior__ __iand__".split()
)
"""Special methods of a program's own classes that Python calls and Monty 1.4 does not."""


def missing(error: str, program: str) -> bool:
    """`error`: the type and message with which `program` failed."""
    if _SAYS_SO.search(error) or _NO_MODULE.match(error):
        return True
    if (name := _NO_NAME.match(error)) and hasattr(builtins, name[1]):
        return True
    if attribute := _NO_ATTRIBUTE.match(error):
        kinds = _TYPES.get(attribute[1], (object,))
        if "." in attribute[1] and attribute[1] not in _TYPES:  # of a library, and not of the program
            return True
        if any(hasattr(kind, attribute[2]) for kind in kinds):
            return True
    return behaves_differently(program, asserted=error.startswith("AssertionError"))


def behaves_differently(program: str, asserted: bool) -> bool:
    """Whether the failure of `program` (also for want of time or memory) may come from the sandbox: Python might
    run it. Generators, `map`, `filter`, `zip` and `enumerate` are worked off at once here, and some special methods
    are never called. `asserted`: it ran, and a test found it wrong."""
    try:
        nodes = list(ast.walk(ast.parse(program)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if any(isinstance(node, ast.FunctionDef) and node.name in _NEVER_CALLED for node in nodes):
        return True
    return not asserted and any(map(_is_lazy, nodes))


def _is_lazy(node: ast.AST) -> bool:
    """Whether Python would leave out work here that this language does."""
    match node:
        case ast.Import(names=names):
            return any(alias.name == "itertools" for alias in names)
        case ast.ImportFrom(module="itertools"):
            return True
        case ast.Call(func=ast.Name(id="next" | "iter")):
            return True
        case ast.Call(func=ast.Name(id="any" | "all"), args=[ast.GeneratorExp() | ast.Call()]):
            return True
    return False
