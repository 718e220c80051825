"""What runs in WASI's own CPython: an answer, or its tests, and how they talk.

The host passes this file to the interpreter as its program (`wasi.py`). An answer and its tests never share an
interpreter, so whatever an answer does to its own changes nothing about its tests. They exchange plain data alone, as
words of letters and digits:

    encoded([1, "a"])                           # "l2 i1 s61"
    decoded(iter("l2 i1 s61".split()))          # [1, "a"]
"""

from __future__ import annotations

import builtins
import os
import sys

TYPE_CHECKING = False  # `typing` takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType
    from typing import Any, Final

HEARS, SAYS, PRINTS = 0, 1, 2
"""File descriptors: what the host says, what it is told, and what is thrown away. All that a guest says before it hears
again is one message."""


class Unknown(BaseException):
    """What an answer and its tests would exchange is no plain data: nobody can say whether the answer is right."""


def encoded(value: Any) -> str:
    """Plain data as words; an object of the answer's own class as the plain data that it is. Raises `Unknown`."""
    match value:
        case None:
            return "n"
        case bool():
            return f"t{value:d}"
        case int():
            return f"i{int(value):x}"
        case float():
            return f"f{float.hex(value)}"
        case str():
            return f"s{value.encode('utf-8', 'surrogatepass').hex()}"
        case bytes():
            return f"b{value.hex()}"
        case dict():
            return " ".join([f"d{len(value)}", *(f"{encoded(key)} {encoded(one)}" for key, one in value.items())])
    for letter, kind in _MANY.items():
        if isinstance(value, kind):
            return " ".join([f"{letter}{len(value)}", *map(encoded, value)])
    raise Unknown(type(value).__name__)


def decoded(words: Iterator[str]) -> Any:
    """The value that the next words stand for. Raises any `Exception` for words that stand for none."""
    word = next(words)
    letter, rest = word[0], word[1:]
    if letter in _MANY:
        return _MANY[letter]([decoded(words) for _ in range(int(rest))])
    if letter == "d":
        return {decoded(words): decoded(words) for _ in range(int(rest))}
    return _ONE[letter](rest)


_ONE: Final[dict[str, Callable[[str], Any]]] = {
    "n": lambda _: None,
    "t": lambda said: said == "1",
    "i": lambda said: int(said, 16),
    "f": float.fromhex,
    "s": lambda said: bytes.fromhex(said).decode("utf-8", "surrogatepass"),
    "b": bytes.fromhex,
}
_MANY: Final[dict[str, Any]] = {"l": list, "u": tuple, "e": set, "z": frozenset}


def asked(said: str = "") -> Any:
    """What the host answers to what this guest says."""
    data = said.encode()
    while data:
        data = data[os.write(SAYS, data) :]
    parts = [b""]
    while not parts[-1].endswith(b"\n"):
        parts.append(os.read(HEARS, 2**16))
    return decoded(iter(b"".join(parts).decode().split()))


def serve_answer() -> None:
    """Runs an answer, then tells of its names and calls its functions as its tests ask."""
    space: dict[str, Any] = {"__name__": "__main__"}
    program = asked()
    said = encoded("ran")
    try:
        exec(compile(program, "answer", "exec"), space)
    except BaseException as error:
        said = encoded(_raised(error))
    while True:
        name, *given = asked(said)
        said = _called(space[name], *given) if given else _told(space, name)


def _told(space: dict[str, Any], name: str) -> str:
    """What the answer means by a name: a kind and a value."""
    value = space.get(name)
    try:
        if name not in space:
            return encoded(["absent", None])
        if isinstance(value, type(sys)):
            return encoded(["module", value.__name__])
        return encoded(["function", None] if callable(value) and not isinstance(value, type) else ["data", value])
    except BaseException:
        return encoded(["unknown", None])


def _called(function: Any, positional: Any, named: Any) -> str:
    """What a function returns, and what it makes of what it was given; or the error that it raises."""
    try:
        return encoded(["returned", function(*positional, **named), positional])
    except BaseException as error:
        name = _raised(error)
        return encoded(["unknown" if name == "unknown" else "raised", name, None])


def _raised(error: BaseException) -> str:
    """The builtin class of an error; "unknown" for want of something that Python has elsewhere."""
    if isinstance(error, ModuleNotFoundError | Unknown) or "can't start new thread" in str(error):
        return "unknown"
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


class Elsewhere:
    """A function of the answer, as its tests see it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *positional: Any, **named: Any) -> Any:
        kind, value, changed = asked(encoded([self._name, positional, named]))
        if kind == "unknown":
            raise Unknown
        if kind == "raised":
            error = vars(builtins).get(value)
            raise error if isinstance(error, type) and issubclass(error, Exception) else Exception
        for old, new in zip(positional, changed, strict=True):
            if isinstance(old, list):
                old[:] = new
            elif isinstance(old, dict | set):
                old.clear()
                old.update(new)
        return value

    def __getattr__(self, name: str) -> Any:
        raise Unknown


class Names(dict[str, "Any"]):
    """What names mean to tests: what they have here, and what the answer means by all others."""

    def __missing__(self, name: str) -> Any:
        kind, value = asked(encoded([name]))
        if kind == "absent":
            raise KeyError(name)
        self[name] = _meant(name, kind, value)
        return self[name]


def serve_tests() -> None:
    """Runs what stands before the answer, so that tests have it as it is there, and then the tests. Says how many pass;
    None if nobody can say."""
    before, *tests = (compile(program, "tests", "exec") for program in asked())
    names = Names(vars(builtins), __name__="__main__")
    passed: int | None = None
    try:
        exec(before, names)
        passed = 0
        passed = sum(_passes(test, names) for test in tests)
    except Unknown:
        passed = None
    except Exception:
        pass  # the answer has made up how it talks, or nobody can run what stands before it
    asked(encoded(passed))


def _meant(name: str, kind: str, value: Any) -> Any:
    """What a name of the answer's stands for in its tests."""
    if kind == "function":
        return Elsewhere(name)
    if kind == "module" and value in sys.stdlib_module_names:
        return __import__(value)
    if kind == "data":
        return value
    raise Unknown


def _passes(test: CodeType, names: Names) -> bool:
    try:
        exec(test, names)
    except Unknown:
        raise
    except BaseException:
        return False
    return True


if __name__ == "__main__":
    sys.stdin, sys.stdout = None, sys.stderr  # of PRINTS
    serve_tests() if sys.argv[1] == "tests" else serve_answer()
