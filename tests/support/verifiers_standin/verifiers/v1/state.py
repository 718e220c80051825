"""See `verifiers`."""

from typing import Any

from pydantic import BaseModel


class State(BaseModel):
    artifacts: dict[str, Any] = {}


def state_cls(kind: type) -> type[State]:
    return State
