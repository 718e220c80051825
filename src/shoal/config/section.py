"""A group of settings: typed, with the meaning of each where it is declared and its default beside it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class Section(BaseModel):
    """A group of settings: unknown names are refused, meanings are the docstrings below the fields."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, validate_assignment=True)


def settings_of(section: type[BaseModel], prefix: str = "") -> list[tuple[str, FieldInfo]]:
    """Every setting as (dotted name, field), in the order of declaration."""
    found: list[tuple[str, FieldInfo]] = []
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found += settings_of(field.annotation, f"{prefix}{name}.")
        else:
            found.append((prefix + name, field))
    return found
