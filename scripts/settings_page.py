"""Writes docs/reference/settings.md: every setting with its meaning and default, as `shoal.config` declares it.

    python scripts/settings_page.py

A test compares the page in the tree with what this writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from shoal.cli.flags import NOT_FLAGS
from shoal.config.names import short_names
from shoal.config.rewards import RewardSection, kinds_of_reward, reward_section
from shoal.config.sections import Section, settings_of
from shoal.config.settings import Config

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"
HEADER = """\
# Settings

<!-- Written by scripts/settings_page.py from src/shoal/config; do not edit. -->

A run has one configuration. Every setting has a default, may stand in a TOML file, and is a flag. Flags go over the
file, the file over the defaults. `shoal run --help` shows the common settings, `--help-all` all of them.

```toml
seed = 7
rounds = 200

[tasks]
suite = "paper"

[policy]
model = ["HuggingFaceTB/SmolLM2-135M-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"]   # the nodes take them in turn

[round]
nodes = 4
local = 4        # I
peers = 4     # J
```

    shoal run --config my.toml --rounds 20 --out runs/try

A flag is the setting's dotted name (`--round.peers 2`) or the short one below (`--peers 2`); `_` and `-` are
equal. In Python the short names are keyword arguments of `shoal.run`. An unknown name is refused with the nearest right
one. A run writes its complete configuration into `config.toml`;
`shoal run --config` on that file repeats the run.

`auto` in a run's `config.toml` is resolved, except for what depends on the machine (device, dtype, workers).
`[network]` and `evaluation.judges` are for `shoal join` alone. The laboratory adds `[experiment]`
([controls](../guides/lab.md#controls)).
"""


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    """The whole page."""
    plain = [(name, field) for name, field in Config.model_fields.items() if not sections_of(field)]
    flags = short_names([name for name, _ in settings_of(Config)])
    parts = [HEADER, "## The run\n", table(plain, "", flags)]
    for name, field in Config.model_fields.items():
        for section in sections_of(field):
            parts += list(section_text(name, field, section, flags))
    return "\n".join(parts)


def section_text(name: str, field: FieldInfo, section: type[Section], flags: dict[str, str]) -> Iterator[str]:
    """The heading and table of a section, and of the sections that its fields list."""
    listed = get_origin(field.annotation) is list
    kind = next((kind for kind in kinds_of_reward() if reward_section(kind) is section), "")
    yield f"## {f'[[{name}]]' if listed else f'[{name}]'}{f': {kind}' if kind else ''}\n"
    yield f"{' '.join((section.__doc__ or '').split())}\n"
    inner = [(leaf, one) for leaf, one in section.model_fields.items() if not sections_of(one)]
    if kind:
        inner = [(leaf, one) for leaf, one in inner if leaf != "kind"]
    if inner:
        yield table(inner, f"{name}.", {} if listed else flags)
    for leaf, one in section.model_fields.items():
        for part in sections_of(one):
            yield from section_text(f"{name}.{leaf}", one, part, flags)


def table(fields: list[tuple[str, FieldInfo]], prefix: str, flags: dict[str, str]) -> str:
    """Settings in a table; `flags`: their short names by the dotted ones."""
    rows = ["| setting | flag | default | meaning |", "|---|---|---|---|"] if flags else []
    rows = rows or ["| setting | default | meaning |", "|---|---|---|"]
    for name, field in fields:
        dotted = prefix + name
        flag = flags.get(dotted, dotted).replace("_", "-")
        cells = [f"`{name}`"]
        if flags:
            cells += ["" if dotted in NOT_FLAGS else f"`--{flag}`"]
        cells += [default_of(field), meaning_of(field)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def default_of(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "*needed*"
    if default == "" or default == [] or default == {}:
        return "none"
    shown = ", ".join(map(str, default)) if isinstance(default, list) else str(default)
    return f"`{shown.lower() if isinstance(default, bool) else shown}`"


def meaning_of(field: FieldInfo) -> str:
    """The setting's docstring, and its choices unless the docstring names them all."""
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    meaning = meaning.replace("<answer> </answer>", "`<answer> </answer>`")
    choices = [str(choice) for choice in get_args(field.annotation)] if get_origin(field.annotation) is Literal else []
    if len(choices) > 1 and not all(choice in meaning for choice in choices):
        meaning += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
    return meaning


def sections_of(field: FieldInfo) -> list[type[Section]]:
    """The sections that a field holds: one, those in a list, or all kinds of rewards."""
    found = list(_sections(field.annotation))
    return [reward_section(kind) for kind in kinds_of_reward()] if found == [RewardSection] else found


def _sections(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _sections(get_args(annotation)[0])
    else:
        for part in get_args(annotation):
            yield from _sections(part)


if __name__ == "__main__":
    sys.exit(main())
