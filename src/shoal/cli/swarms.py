"""`shoal join --list`, `shoal join NAME` and `shoal join INVITATION`: swarms by what their hosts have signed."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from shoal.config.load import make_config, merged
from shoal.config.own_code import call_offered, offered
from shoal.display.text import print_warning
from shoal.errors import UserError
from shoal.identity.keys import identity_path, name_of
from shoal.invitations.entry import BadEntry, Entry, date
from shoal.invitations.invitation import Invitation, is_invitation, read_invitation
from shoal.invitations.pinned import DIGITS, KNOWN, is_name, kept, known_swarms, remember, spelled
from shoal.untrusted import printable

GROUP: Final = "shoal.directories"
YOURS = "not named by the host: each node gives its own (--data, --task, --suite or --config)"


@dataclass(frozen=True)
class Found:
    """The swarm that a name or an invitation means."""

    entry: Entry
    source: str
    """Where the entry stands."""
    is_new: bool
    """Whether its host was not known by this name."""
    notes: tuple[str, ...] = ()
    """What the user should know."""


class Directories(Protocol):
    """What knows swarms by their names: an entry point of the group `shoal.directories`."""

    def find(self, word: str, allow_private: bool) -> Found:
        """The swarm that NAME or NAME@KEY means. `allow_private`: addresses within the user's own networks are fine.
        Raises `UserError` if there is none, or if the user has to choose."""
        ...

    def overview(self) -> RenderableType:
        """All swarms that it knows. Raises `UserError`."""
        ...


def list_swarms(sources: Sequence[str] | None, words: Sequence[str]) -> int:
    """Prints the swarms of the directories; of each of `words` everything that its entry says."""
    console = Console(highlight=False)
    if words and all(is_invitation(word) for word in words):
        for word in words:
            console.print(described(_invited(word)[0]))
        return 0
    directories = _directories(sources, "--list")
    for word in words:
        if not is_name(word):
            raise UserError(f"--list shows swarms by their names: {word!r} is none")
        console.print(described(directories.find(word, allow_private=True)))
    if not words:
        console.print(directories.overview(), soft_wrap=True)
    return 0


def _directories(sources: Sequence[str] | None, word: str) -> Directories:
    """What knows the swarms of these directories, or of those that the user noted. Raises `UserError`."""
    if not offered(GROUP):
        raise UserError(
            f"'{word}' is no endpoint: write HOST:PORT, as relay.example.org:7447; names of swarms "
            "take another package: pip install 'shoal[host]'"
        )
    found: Directories = call_offered(GROUP, next(iter(offered(GROUP))), sources)
    return found


def swarm_settings(args: argparse.Namespace, given: dict[str, Any]) -> dict[str, Any] | None:
    """The settings of the swarm that the words of `shoal join` or `shoal human` name, once it is shown who hosts it and
    what it asks for; None if they are addresses. `given`: the flags, which may not say the same. Raises `UserError`."""
    words: Sequence[str] = args.endpoints
    if given.get("network", {}).get("transport", "zenoh") != "zenoh":  # its words name no swarm
        return None
    named = [word for word in words if is_name(word) or is_invitation(word)]
    if not named:
        if args.directory or args.allow_private:
            raise UserError("--directory and --allow-private go with the NAME of a swarm")
        return None
    [word, *_] = named
    if is_invitation(word):
        found, secret = _invited(*words)
    else:
        directories, secret = _directories(args.directory, word), ""
        if len(words) > 1:
            raise UserError(f"'{word}' stands alone: its entry has the addresses")
        found = directories.find(word, args.allow_private)
    entry = found.entry
    _check_given(entry.name, entry, given, args.config is not None)
    make_config(entry.settings, f"the entry '{entry.name}'")
    if not args.quiet:
        shown = Text(printable(in_one_line(found, bool(secret)), 2000)) if is_invitation(word) else described(found)
        Console(highlight=False).print(shown, soft_wrap=is_invitation(word))
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    for note in found.notes:
        print_warning(errors, note)
    files = kept(entry, secret)
    remember(entry)
    return merged(entry.settings, {"network": files})


def invited_network(words: Sequence[str]) -> dict[str, Any]:
    """The settings of `[network]` by which the swarm of an invitation is heard without joining it, once it is shown
    whose swarm that is. `words`: the invitation, and nothing else. Raises `UserError`."""
    found, secret = _invited(*words)
    entry = found.entry
    shown = Text(printable(in_one_line(found, bool(secret), "watches"), 2000))
    Console(highlight=False).print(shown, soft_wrap=True)
    files = kept(entry, secret)
    remember(entry)
    return {**entry.settings["network"], **files}


def in_one_line(found: Found, private: bool, does: str = "joins") -> str:
    """What is done with an invitation."""
    entry = found.entry
    host = f"{entry.host} (key {entry.key[:DIGITS]}, {'new' if found.is_new else 'known'})"
    judges = f"; judge: {', '.join(map(_judge, entry.judges))}" if entry.judges else ""
    kind = "private swarm" if private else "swarm"
    tasks = f"{entry.tasks or YOURS}"
    if entry.tasks and entry.tasks.needs:
        tasks += f" (needs {', '.join(entry.tasks.needs)})"
    return f"{does} the {kind} {entry.swarm} of {host}: connects to {', '.join(entry.relays)}{judges}; tasks: {tasks}"


def _invited(word: str, *others: str) -> tuple[Found, str]:
    """What an invitation means, and its secret. Raises `UserError`, also if there are `others` beside it."""
    if others:
        raise UserError("an invitation stands alone: it has the addresses, and it is one word")
    try:
        invitation: Invitation = read_invitation(word, time.time())
    except BadEntry as error:
        raise UserError(f"this invitation cannot be used: {error}") from None
    entry, known = invitation.signed.entry, known_swarms()
    if known.get(entry.name, entry.key) != entry.key:
        raise UserError(
            f"ANOTHER HOST: the name '{entry.name}' belongs to the key {known[entry.name][:DIGITS]}, which you joined "
            f"or watched before, and this invitation is of {spelled(entry)}: if you trust that one, remove the line of "
            f"'{entry.name}' from {identity_path().with_name(KNOWN)}"
        )
    return Found(entry, "an invitation", entry.name not in known), invitation.secret


def _check_given(word: str, entry: Entry, given: dict[str, Any], has_file: bool) -> None:
    """Raises `UserError` if flags say what the entry says, or if nobody says which tasks."""
    said = [name for name in ("name", "connect") if name in given.get("network", {})]
    said += [name for name in ("suite", "only", "sources", "examples", "answer") if name in given.get("tasks", {})]
    if entry.tasks is None:
        if not said and not has_file:
            raise UserError(
                f"the host of '{word}' does not name the tasks: give them by --data, --task, --suite or --config; its "
                "rules say which (`shoal join NAME-OR-INVITATION --list`)"
            )
        said = [name for name in said if name in ("name", "connect")]
    if said:
        flag = "--task or --data" if said[0] == "sources" else f"--{said[0]}"
        raise UserError(f"the entry '{word}' says the swarm, where it is and its tasks: leave out {flag}")


def described(found: Found) -> Group:
    """All that an entry says, as text of a stranger."""
    entry = found.entry
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")

    def row(label: str, *values: str) -> None:
        for value in values:
            grid.add_row(label, Text(printable(value, 400)))
            label = ""

    state = "new: the name belongs to this key from your first join on" if found.is_new else "known"
    row("host", f"{entry.host}, key {entry.key[:DIGITS]} ({state})")
    row("swarm", entry.swarm)
    if entry.certificate:
        row("certificate", f"SHA-256 {entry.certificate}")
    row("tasks", str(entry.tasks or YOURS))
    row("needs", *(entry.tasks.needs if entry.tasks else ()))
    row("relays", *entry.relays)
    row("judges", *(_judge(address) for address in entry.judges))
    row("rules", *entry.rules)
    row("holds", f"signed on {date(entry.signed)}, until {date(entry.expires)}; from {found.source}")
    head = Text(entry.name, "bold").append(f"  {printable(entry.about)}" if entry.about else "", "not bold")
    return Group(head, grid)


def _judge(address: str) -> str:
    url, _, key = address.partition("#")
    return f"{url} ({name_of(bytes.fromhex(key))})"
