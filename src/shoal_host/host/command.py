"""`shoal host`: hosts a swarm until it is stopped."""

import argparse
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from shoal.cli.command import found_commands
from shoal.errors import UserError
from shoal.identity.keys import replace
from shoal.identity.secret import OPEN, read_secret
from shoal.runs.disk import disk_errors, locked
from shoal.signals import on_stop
from shoal.transports.zenoh.session import TransportOptions
from shoal.untrusted import printable
from shoal_host.host.keys import HostKeys, host_keys
from shoal_host.host.news import News
from shoal_host.host.parts import Part, parts_of
from shoal_host.host.settings import LOOPBACK, HostSettings, at, keep, settled, was_hosted
from shoal_host.host.supervisor import Supervisor
from shoal_host.invitations.entry import DAY, BadEntry, Entry, EntryTasks
from shoal_host.invitations.invitation import sign_entry, written
from shoal_web.serving.server import is_loopback
from shoal_web.watch.swarm import SwarmSource

HELP = """Hosts a swarm in one command: a relay, a judge, a window on both and, if wished, a page for people. It prints
an invitation, one line that others paste to join. All that it keeps is in one folder.

  shoal host                                        hosts a new swarm in the folder host/
  shoal host club --swarm club --suite reef         another swarm and other tasks
  shoal host club                                   goes on: same keys, certificate, ports and records
  shoal host lab --private --human                  a private swarm, with a page on which you answer, too
  shoal host --address swarm.example.org            the name by which others reach this machine

It says who comes, leaves, is silent or limited, and sums up each minute. Each part is a process of its own, with a log
in FOLDER/logs, and starts again alone if it ends. Ctrl-C ends all. Others need to reach the ports N and N + 1 (7447 and
7448). Whoever hosts decides nothing: nodes check what they get (docs/guides/host.md)."""
FOLDER: Final = "host"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `shoal host`. A flag that is not given is as it was at the last start."""
    parser.add_argument("folder", nargs="?", type=Path, default=Path(FOLDER), metavar="FOLDER", help="default: host")
    add = parser.add_argument
    add("--swarm", metavar="NAME", help="small letters, digits, - (default: a new one)")
    add("--about", metavar="LINE", help="what it is, for those who are invited")
    add("--suite", metavar="NAME", help="the suite of tasks (default pond)")
    add("--task", action="append", dest="only", metavar="NAME", help="only this task of it; repeatable")
    add("--answer", choices=("task", "strict"), help="strict: a word beside an answer makes it wrong (default task)")
    address = "by which others reach this machine; repeatable (default: its address in its network)"
    add("--address", action="append", dest="addresses", metavar="HOST", help=address)
    add("--port", type=int, metavar="N", help="of the relay; N + 1 to N + 3 are the others' (default 7447)")
    switch = argparse.BooleanOptionalAction
    add("--private", action=switch, help="with a secret, which the invitation has")
    add("--human", action=switch, help="also a page on which people answer questions")
    pages = "where window and page listen (default 127.0.0.1); elsewhere they ask for the token in FOLDER/token"
    add("--pages", metavar="HOST", help=pages)


def slack_of(settings: HostSettings) -> str:
    """What foreign text earns in these tasks, by the command `validate`, in a line."""
    validate = found_commands().get("validate")
    return str(validate.load("validate").slack(settings.tasks)) if validate else "slack: unknown without shoal validate"


def command(args: argparse.Namespace) -> int:
    """`shoal host`."""
    folder: Path = args.folder
    given: dict[str, Any] = {
        name: value for name in HostSettings.__struct_fields__ if (value := getattr(args, name, None)) is not None
    }
    begins = "goes on with" if was_hosted(folder) else "hosts"
    settings = settled(folder, given)
    with disk_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    busy = f"another `shoal host` runs in {folder}: end that one, or name another folder (and another --port)"
    with closing(locked(folder, busy=busy)):
        keep(folder, settings)
        keys = host_keys(folder, settings.reached, settings.private)
        parts = parts_of(folder, settings, keys)
        for part in parts:
            part.check_port()
        with disk_errors(folder):
            (folder / LOGS).mkdir(exist_ok=True)
        word = invite(folder, settings, keys)
        console = Console(highlight=False, soft_wrap=True)

        def say(text: str) -> None:
            console.print(Text(text))

        say(f"{begins} the swarm {settings.swarm} (suite {settings.suite}) in {folder}")
        if settings.unjudged:
            say(f"no judge: it asks by text alone and once, which {settings.unjudged!r} does not allow")
        stop = threading.Event()
        with on_stop(stop.set), Supervisor(parts, folder / LOGS, say) as supervisor:
            supervisor.start(stop)
            if not stop.is_set():
                show(console, folder, settings, parts, word)
                threading.Thread(target=lambda: say(slack_of(settings)), daemon=True).start()
            own = TransportOptions((f"tls/{LOOPBACK}:{settings.port}",), ca=keys.certificate)
            secret = read_secret(keys.secret_file, settings.swarm) if keys.secret_file else OPEN
            with closing(SwarmSource(settings.swarm, own, secret)) as source:
                supervisor.watch(stop, News(source, folder / LOGS / "relay.log", say).look)
            say("stopping")
        say(f"ended; `shoal host {folder}` goes on")
    return 0


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
