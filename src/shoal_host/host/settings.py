"""What a host decides, kept in `host.toml` of its folder, so that a second start needs no flags.

settings = settled(folder, {"swarm": "club"})    # the file's, with these over them
"""

import re
import secrets
import socket
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import tomli_w
from msgspec import Meta

from shoal.config.load import read_config
from shoal.config.tasks import PICTURES, TasksConfig
from shoal.errors import UserError
from shoal.identity.keys import name_of
from shoal.runs.disk import LOCK, write_atomically
from shoal.tasks.environments.games import Guess
from shoal.tasks.suites import specs_of
from shoal.untrusted import printable
from shoal_host.invitations.entry import Line, Word

FILE: Final = "host.toml"
PORT: Final = 7447
LOOPBACK: Final = "127.0.0.1"
ELSEWHERE: Final = "192.0.2.1"
"""An address that is nowhere (RFC 5737). To ask the system which way leads there sends nothing."""

Host = Annotated[str, Meta(pattern=r"\A([A-Za-z0-9.-]{1,253}|[0-9A-Fa-f:]{2,39})\Z")]


class HostSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A swarm and where it is hosted."""

    version: Literal[1] = 1
    swarm: Word = msgspec.field(default_factory=lambda: name_of(secrets.token_bytes(32)))
    """By default a new name, since whoever joins keeps the name with the key of its host."""
    about: Line = ""
    suite: str = "pond"
    only: Annotated[tuple[str, ...], Meta(max_length=32)] = ()
    answer: Literal["task", "strict"] = "task"
    addresses: Annotated[tuple[Host, ...], Meta(max_length=4)] = ()
    """Names or IP addresses by which others reach this machine; none: found anew at each start."""
    port: Annotated[int, Meta(ge=1024, le=65_532)] = PORT
    """Of the relay. The judge has the next one, then the window and the page for people."""
    private: bool = False
    human: bool = False
    pages: Host = LOOPBACK
    """Where window and page for people listen."""

    @property
    def tasks(self) -> TasksConfig:
        return TasksConfig(suite=self.suite, only=list(self.only), answer=self.answer)

    @property
    def unjudged(self) -> str:
        """The first task of which no judge asks, since it shows pictures or answers back; empty if there is none."""
        names = [spec.name for spec in specs_of(self.tasks)]
        return next((name for name in names if self.suite == PICTURES or name == Guess.name), "")

    @property
    def reached(self) -> tuple[str, ...]:
        """By which names or addresses others reach this machine."""
        return self.addresses or (own_address(),)

    @property
    def listens(self) -> str:
        """The address on which relay and judge listen."""
        if all(each in (LOOPBACK, "localhost") for each in self.reached):
            return LOOPBACK
        return "[::]" if any(":" in each for each in self.reached) else "0.0.0.0"


def was_hosted(folder: Path) -> bool:
    """Whether a host was started in this folder before. Raises `UserError` if it has something else."""
    hosted = (folder / FILE).exists()
    if not hosted and folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - {LOCK}):
        raise UserError(f"{folder} is not the folder of a host, and not empty: name another one")
    return hosted


def settled(folder: Path, given: dict[str, Any]) -> HostSettings:
    """The settings in the folder, if it has any, with those that are `given` over them. Raises `UserError`."""
    path = folder / FILE
    kept = read_config(path) if path.exists() else {}
    try:
        settings = msgspec.convert({**kept, **given}, HostSettings)
    except msgspec.ValidationError as error:
        raise UserError(f"{path if kept else 'the command line'}: {_explained(str(error))}") from None
    specs_of(settings.tasks)
    if settings.answer != "task" and settings.unjudged == Guess.name:
        raise UserError("--answer strict is for answers of one text, and not for games")
    return settings


def keep(folder: Path, settings: HostSettings) -> None:
    """Writes them. Raises `UserError`."""
    write_atomically(folder / FILE, tomli_w.dumps(msgspec.to_builtins(settings)).encode())


def own_address() -> str:
    """The address with which this machine goes out; its loopback address if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ELSEWHERE, 9))
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


def at(host: str, port: int) -> str:
    """HOST:PORT."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _explained(error: str) -> str:
    """An error of msgspec in a user's words."""
    if "$.swarm" in error:
        return "the swarm's name has 1 to 32 small letters, digits and -, and begins with none of these"
    if "$.port" in error:
        return "the port must be from 1024 to 65532, as the next three are used, too"
    return printable(re.sub(r" - at `\$\.?", " (", error).replace("`", ")"), 200)
