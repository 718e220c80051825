"""See `verifiers`."""

from typing import Any


def discover_decorated(task: Any, kind: str) -> list[Any]:
    names = {n for each in type(task).__mro__ for n, value in vars(each).items() if getattr(value, kind, None) is True}
    return sorted((getattr(task, name) for name in names), key=lambda hook: str(hook.__name__))
