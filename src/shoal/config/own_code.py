"""Code of one's own, which a setting names as `module:attribute`. It is imported here and nowhere else.

Whoever calls this has the user's word for it: `config.make_config` refuses a file that names code, unless the user
said --allow-code. Importing a module runs it; what is found there is looked at before it is called.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, get_type_hints

from shoal.errors import UserError, nearest


def task_maker(name: str) -> Callable[..., Any]:
    """The class of a task, or a function that says in its annotation that it returns one. Raises `UserError`."""
    found = _imported(name, "task")
    made = get_type_hints(found).get("return") if isinstance(found, FunctionType) else found
    if not (isinstance(made, type) and all(callable(getattr(made, method, None)) for method in ("question", "score"))):
        raise UserError(
            f"task {name!r} is not a task: name a class with the methods `question` and `score` (shoal.tasks.Task), or "
            "a function that is annotated to return one"
        )
    maker: Callable[..., Any] = found
    return maker


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


def factory(name: str, what: str) -> Callable[..., Any]:
    """A class or function that makes a part of a node (`what`: "policy", "learner" or "selection"). Raises
    `UserError`."""
    found = _imported(name, what)
    if not callable(found):
        raise UserError(f"{what} {name!r} is not a class or a function")
    made: Callable[..., Any] = found
    return made


def _imported(name: str, what: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)  # an installed program does not look there by itself
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything while it is imported
        raise UserError(f"{what} {name!r}: cannot import {module_name!r}: {error}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        names = [name for name in vars(module) if not name.startswith("_")]
        raise UserError(f"{what} {name!r}: {module_name} has no {attribute!r}; {nearest(attribute, names)}") from None
