"""What `shoal --help` knows of a command before its module is imported.

    [project.entry-points."shoal.commands"]
    hello = "my_package.commands:HELLO"            # HELLO = Command("my_package.hello", "say hello")

The module has `HELP` (a text), `add_arguments(parser)` and `command(args) -> int`. See docs/extend/commands.md.
"""

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from shoal.errors import UserError

GROUP: Final = "shoal.commands"


@dataclass(frozen=True)
class Command:
    """A command: the module that has it, and its purpose in a line."""

    module: str
    purpose: str
    extra: str = ""
    """What installs the packages that it imports: pip install 'shoal[EXTRA]'."""

    def load(self, name: str) -> ModuleType:
        """The module. Raises `UserError` if a package that it imports is missing."""
        try:
            return importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if not self.extra:
                raise
            raise UserError(f"`shoal {name}` needs {error.name}: pip install 'shoal[{self.extra}]'") from error


def found_commands() -> dict[str, Command]:
    """The commands of installed packages, by name. The entry points of a broken package are errors of that package."""
    from shoal.config.own_code import offered  # a tenth of a second

    return {name: entry.load() for name, entry in offered(GROUP).items()}
