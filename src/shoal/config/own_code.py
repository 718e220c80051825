"""Code of your own, which a setting names as `module:attribute` or `path/to/file.py:attribute`, and code that installed
packages offer by entry points. It is imported here and nowhere else.

`config.load.make_config` has already refused files that name code, unless the user gave --allow-code. Importing a
module runs it; what is found there is checked before it is called.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeVar, get_type_hints

from shoal.errors import UserError, in_brief, nearest
from shoal.untrusted import parse_toml

_importing = 0


KINDS: Final = {"task": ("question", "score"), "environment": ("begin", "answer", "score"), "tools": ("reset",)}
"""The methods that identify each kind of class: a task, an environment, and an environment in TRL's form."""


def task_maker(name: str) -> tuple[Callable[..., Any], str]:
    """The class of a task or an environment, or a function that says in its annotation that it returns one; and which
    of `KINDS` it is. Raises `UserError`."""
    found = _imported(name, "task")
    try:
        made = get_type_hints(found).get("return") if isinstance(found, FunctionType) else found
    except Exception as error:  # annotations are code, too; their names may be known to type checkers alone
        raise UserError(f"task {name!r}: its annotations cannot be read: {in_brief(error)}") from error
    kinds = [kind for kind, methods in KINDS.items() if all(callable(getattr(made, m, None)) for m in methods)]
    if not (isinstance(made, type) and kinds):
        raise UserError(
            f"task {name!r} is not a task: name a class with the methods `question` and `score` (shoal.tasks.Task), "
            "one with `begin`, `answer` and `score` (shoal.tasks.Environment), or a function that is annotated to "
            "return one"
        )
    return found, kinds[0]


def reward_function(name: str) -> Callable[..., Any]:
    """A function that takes `prompts` or `completions`, as TRL's do. Raises `UserError`."""
    found = _imported(name, "reward function")
    try:
        parameters = list(inspect.signature(found).parameters.values()) if callable(found) else []
    except ValueError:  # some of those that are written in C
        parameters = []
    named = any(parameter.name in ("prompts", "completions") for parameter in parameters)
    takes_all = isinstance(found, FunctionType) and [p.kind for p in parameters] == [inspect.Parameter.VAR_KEYWORD]
    if not (named or takes_all):
        raise UserError(
            f"reward function {name!r} takes neither `prompts` nor `completions`: write def f(completions, **kwargs)"
        )
    function: Callable[..., Any] = found
    return function


def name_of_function(function: Callable[..., Any]) -> str:
    """`module:attribute` of a function, for other processes. Raises `UserError` for one without such a name."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module == "__main__":
        module = getattr(sys.modules["__main__"], "__file__", None)
    if not module or not name.isidentifier():
        raise UserError(
            f"the function {name or function!r} cannot be found by other processes: define it at the top of a file"
        )
    return f"{module}:{name}"


def refuse_import() -> None:
    """Raises `UserError` where a process imports the user's file for a function in it: the file must not run again."""
    if _importing:
        raise UserError(
            "this file is imported for the function in it: put what it does under if __name__ == '__main__'"
        )


@contextmanager
def importing() -> Iterator[None]:
    """Marks that the user's code is being imported, and lets Python find it in the working folder."""
    look_in(Path.cwd())  # an installed program does not look there by itself
    global _importing
    _importing += 1
    try:
        yield
    finally:
        _importing -= 1


Part = TypeVar("Part")


def make_part(name: str, what: str, kind: type[Part], *arguments: Any) -> Part:
    """The part of a node that `name` makes when it is called with `arguments`. `what`: policy, learner or selection;
    `kind`: its protocol. Raises `UserError` if it cannot be made, or lacks a member of the protocol."""
    return _made(_imported(name, what), name, what, kind, *arguments)


CALL: Final = re.compile(r"([^()\s]+)(?:\((.*)\))?")
"""A name, and in parentheses the parameters that it is called with."""


def is_own(setting: str) -> bool:
    """Whether a setting such as `learner.loss_type` names code of one's own, not one of shoal's."""
    return ":" in setting.partition("(")[0]


def make_named(
    setting: str, what: str, kind: type[Part], known: Mapping[str, str], group: str, *arguments: Any
) -> Part:
    """The part that `setting` names, as `find` does, called with `arguments`. Parameters may follow the name.

        make_named("gspo(epsilon=1e-3)", "loss", Loss, LOSSES, "shoal.losses")

    `kind`: its protocol. Raises `UserError`.
    """
    call = CALL.fullmatch(setting.strip())
    if not call:
        raise UserError(f"{what} {setting!r} is not a name, nor name(parameter=value, ...)")
    name, written = call.groups()
    make = find(name, what, known, group)
    try:
        parameters = parse_toml(f"parameters = {{ {written or ''} }}".encode())["parameters"]
    except ValueError as error:
        raise UserError(f"{what} {setting!r}: write its parameters as {name}(parameter=0.5, other=true)") from error
    return _made(make, setting, what, kind, *arguments, **parameters)


def _made(make: Any, setting: str, what: str, kind: type[Part], *arguments: Any, **parameters: Any) -> Part:
    """What `make` gives for a setting. Raises `UserError` unless it has all members of its protocol."""
    see = f"(see {kind.__module__}.{kind.__name__})"
    try:
        part: Part = make(*arguments, **parameters)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} {setting!r} cannot be made: {error} {see}") from error
    members = {*dir(kind), *kind.__annotations__}
    missing = sorted(member for member in members if not member.startswith("_") and not hasattr(part, member))
    if missing:
        raise UserError(f"{what} {setting!r} lacks {', '.join(missing)} {see}")
    return part


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """`path`: of modules. Another one may have other packages."""
    return {entry.name: entry for entry in entry_points(group=group)}


def offered(group: str) -> Mapping[str, EntryPoint]:
    """What installed packages offer in a group of entry points, by name. Nothing of it is imported."""
    return _entry_points(group, tuple(sys.path))


def call_offered(group: str, name: str, *arguments: Any, **named: Any) -> Any:
    """Calls what a package offers. Raises `UserError` if a package that it needs is missing, and whatever it raises."""
    entry = offered(group)[name]
    try:
        return entry.load()(*arguments, **named)
    except ImportError as error:
        top = entry.module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] == top:
            raise
        package = entry.dist.name if entry.dist else top
        extras = f"[{','.join(entry.extras)}]" if entry.extras else ""
        missing = error.name.partition(".")[0].replace("_", "-")
        kind = group.rpartition(".")[2].removesuffix("s")
        raise UserError(f"{kind} {name!r} needs {missing}: pip install '{package}{extras}'") from error


def find(name: str, what: str, known: Mapping[str, str], group: str) -> Any:
    """What `name` stands for: `module:attribute` itself, a name in `known`, which says as much, or an entry point of
    `group` in an installed package. `what`: engine, loss, transport. Raises `UserError`."""
    if ":" in name or name in known:
        return _imported(known.get(name, name), what)
    if name not in offered(group):
        hint = nearest(name, [*known, *offered(group)])
        raise UserError(f"there is no {what} '{name}'; {hint} (or install the package that has it)")
    try:
        return offered(group)[name].load()
    except Exception as error:  # a package may raise anything while it is imported
        raise UserError(f"{what} '{name}' cannot be imported: {in_brief(error)}") from error


def look_in(folder: Path) -> None:
    """Modules are found in this folder, too."""
    if (found := str(folder.resolve())) not in sys.path:
        sys.path.append(found)


def _imported(name: str, what: str) -> Any:
    module_name, _, attribute = name.rpartition(":")
    file = Path(module_name).resolve() if module_name.endswith(".py") else None
    if file:
        look_in(file.parent)
        module_name = file.stem
    try:
        with importing():
            module = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything while it is imported
        raise UserError(
            f"{what} {name!r}: cannot import {module_name!r} (looked in this folder, too): {error}"
        ) from error
    if file and Path(module.__file__ or "").resolve() != file:
        raise UserError(f"{what} {name!r}: another module is called {module_name!r}: rename the file")
    try:
        return getattr(module, attribute)
    except AttributeError:
        names = [name for name in vars(module) if not name.startswith("_")]
        raise UserError(f"{what} {name!r}: {module_name} has no {attribute!r}; {nearest(attribute, names)}") from None
