"""An entry: what a stranger needs to join a swarm, in the words of its host, who signs it (`invitation`).

    entry = Entry(name="lagoon", relays=("relay.example.org:7447",), key=identity.id, ...)
    entry.settings                  # all that it sets where somebody joins
    check(entry)                    # raises `BadEntry` for what the types do not say

An entry is a stranger's text. It says where the relays are, which suite is asked and who judges, and nothing else: it
names no code, no data, no model and no file.
"""

import contextlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.identity.keys import name_of
from shoal.tasks.suites import specs_of
from shoal.transports.zenoh.session import parse_endpoint
from shoal.untrusted import printable
from shoal_host.judge.address import parse_judge_address

DOMAIN: Final = b"shoal entry v3\0"
DAY: Final = 86_400
LONGEST: Final = 400 * DAY
"""Seconds for which an entry may hold."""

Time = Annotated[int, Meta(ge=0, le=2**37)]
Line = Annotated[str, Meta(max_length=160)]
Place = Annotated[str, Meta(min_length=1, max_length=320)]
Word = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9-]{0,31}\Z")]


class BadEntry(ValueError):  # noqa: N818 (it is what a stranger wrote, not a fault)
    """An entry that is not used. The message says why, in a few words."""


class EntryTasks(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The tasks of a swarm, as the settings of `[tasks]` say it. Parameters of a task's own are no part of it: a few
    digits in one can make a question of gigabytes."""

    suite: Annotated[str, Meta(max_length=32)]
    only: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=32)] = ()
    answer: Literal["task", "strict"] = "task"
    """Never a pattern, which a stranger would have written."""

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of `[tasks]` that say what is asked, so that nothing else is mixed in."""
        said = {"suite": self.suite, "only": list(self.only), "answer": self.answer}
        return {**said, "sources": [], "examples": "task"}

    def __str__(self) -> str:
        tasks = f"suite {self.suite}" + (f": {', '.join(self.only)}" if self.only else "")
        return tasks + (", with strict answers" if self.answer != "task" else "")


class Entry(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A swarm, in the words of its host."""

    name: Word
    """Of the swarm. From the first join on it belongs to the key."""
    about: Line = ""
    relays: Annotated[tuple[Place, ...], Meta(min_length=1, max_length=8)]
    tasks: EntryTasks
    judges: Annotated[tuple[Place, ...], Meta(max_length=4)] = ()
    certificate: Annotated[str, Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    """SHA-256 of the one certificate (DER) that the relays show, which are all at tls/ then. Empty: public authorities
    vouch for relays at tls/."""
    key: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """The host's public key."""
    signed: Time
    expires: Time

    @property
    def host(self) -> str:
        """The readable name of the host's key."""
        return name_of(bytes.fromhex(self.key))

    @property
    def settings(self) -> dict[str, Any]:
        """All that this entry sets where somebody joins, nested as in a file."""
        return {
            "network": {"name": self.name, "connect": list(self.relays)},
            "evaluation": {"judges": list(self.judges)},
            "tasks": self.tasks.settings,
        }

    @property
    def statement(self) -> bytes:
        """The bytes that are signed."""
        return DOMAIN + msgspec.msgpack.encode(self)


def check(entry: Entry) -> None:
    """Raises `BadEntry` for what the types do not say."""
    if not entry.signed < entry.expires <= entry.signed + LONGEST:
        raise BadEntry(f"an entry holds for at most {LONGEST // DAY} days")
    with _as_bad("tasks"):
        specs_of(TasksConfig.model_validate(entry.tasks.settings))
    for relay in entry.relays:
        with _as_bad("relays"):
            endpoint = parse_endpoint(relay)
        if entry.certificate and not endpoint.startswith("tls/"):
            raise BadEntry(f"relays: {printable(relay, 60)!r} has no certificate: write tls/HOST:PORT")
    for judge in entry.judges:
        with _as_bad("judges"):
            parse_judge_address(judge)
        # No path, so that nothing but a judge's own few paths is ever asked for there.
        if not re.fullmatch(r"https?://[^/?#@\\\s]+#[0-9a-f]{64}", judge):
            raise BadEntry(f"judges: {printable(judge, 60)!r}: write https://HOST:PORT#KEY")


def date(seconds: float) -> str:
    """The day, as people write it."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


@contextlib.contextmanager
def _as_bad(where: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise BadEntry(f"{where}: {printable(str(error), 120)}") from None
