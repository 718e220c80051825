"""Takes a model away: to a folder, the Hub, or what an installed package offers (entry points of the group
`shoal.exports`; shoal_extras has `gguf:`).

    target = target_of("gguf:model.Q8_0.gguf", public=False)
    target.write(Exported.of(source_of_export("runs/one"), merge=False, say=print))
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from shoal.config.own_code import call_offered, offered
from shoal.errors import UserError
from shoal.export.exported import Exported
from shoal.export.hub import HubTarget
from shoal.export.writing import check_folder, new_folder

GROUP: Final = "shoal.exports"
"""What is offered is called with what stands behind the colon and returns a `Target`."""


class Target(Protocol):
    """A place for a model. It has been checked that something can be written there."""

    def write(self, model: Exported) -> list[str]:
        """Writes the model and its card. Returns paths or addresses of what was written. Raises `UserError`."""
        ...


@dataclass(frozen=True)
class FolderTarget:
    """A new or empty folder."""

    out: Path

    def write(self, model: Exported) -> list[str]:
        with new_folder(self.out) as scratch:
            model.fill(scratch)
        return [str(self.out)]


def target_of(text: str, public: bool) -> Target:
    """Where `text` (hub:NAME, gguf:FILE, NAME.gguf or a folder) says. Raises `UserError` if nothing can be written
    there."""
    scheme, mark, rest = text.partition(":")
    if text.endswith(".gguf") and not mark:
        scheme, rest = "gguf", text
    if public and scheme != "hub":
        raise UserError("--public is for --to hub:NAME")
    if scheme == "hub" and rest:
        return HubTarget.find(rest, public)
    if scheme in offered(GROUP) and rest:
        target: Target = call_offered(GROUP, scheme, rest)
        return target
    if scheme == "gguf" and rest:
        raise UserError("GGUF files are written by shoal_extras, which is not installed: pip install 'shoal[all]'")
    if mark and re.fullmatch(r"[A-Za-z]{2,}", scheme):
        forms = ", ".join(f"{name}:NAME" for name in ("hub", *sorted(offered(GROUP))))
        raise UserError(f"'{text}' is nowhere to export to: write {forms} or a folder")
    check_folder(Path(text))
    return FolderTarget(Path(text))
