"""Makes the invitation of a host, keeps it in the folder, and shows it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from shoal.errors import UserError
from shoal.identity.keys import replace
from shoal.untrusted import printable
from shoal_host.host.keys import HostKeys
from shoal_host.host.parts import Part
from shoal_host.host.settings import HostSettings, at
from shoal_host.invitations.entry import DAY, BadEntry, Entry, EntryTasks
from shoal_host.invitations.invitation import sign_entry, written
from shoal_web.serving.server import is_loopback

LOGS: Final = "logs"
INVITATION: Final = "invitation"
DAYS: Final = 365
"""For which an invitation holds. Each start writes a new one."""


def invite(folder: Path, settings: HostSettings, keys: HostKeys) -> str:
    """The invitation, which is also written into the folder. Raises `UserError`."""
    now = int(time.time())
    reached = settings.reached
    entry = Entry(
        name=settings.swarm,
        about=settings.about,
        relays=tuple(f"tls/{at(each, settings.port)}" for each in reached),
        tasks=EntryTasks(settings.suite, settings.only, settings.answer),
        judges=() if settings.unjudged else (f"http://{at(reached[0], settings.port + 1)}#{keys.judge.id}",),
        key=keys.identity.id,
        signed=now,
        expires=now + DAYS * DAY,
        certificate=keys.fingerprint,
    )
    try:
        word = written(sign_entry(entry, keys.identity, keys.secret))
    except BadEntry as error:
        raise UserError(f"nobody could join: {printable(str(error), 200)}") from None
    replace(folder / INVITATION, f"{word}\n".encode())
    return word


def show(console: Console, folder: Path, settings: HostSettings, parts: Sequence[Part], word: str) -> None:
    """Prints where the parts are, and the invitation."""

    def say(text: str) -> None:
        console.print(Text(text))

    for part in parts:
        say(f"  {part.name:<7} {part.shown}")
    say(f"  logs    {folder / LOGS}")
    if all(is_loopback(each) for each in settings.reached):
        say("only this machine can join: give --address HOST, by which others reach it")
    if not is_loopback(settings.pages):
        say(f"window and page ask for the token in {folder / 'token'}")
    say(f"\nWhoever runs this line, which {folder / INVITATION} has, joins:")
    say(f"\n    shoal join {word}\n")
    if settings.private:
        say("It has the secret of the swarm: give it to members alone.")
    say("Ctrl-C ends all parts.")
