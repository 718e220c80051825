"""`shoal join --list`, `shoal join NAME` and `shoal join INVITATION`: swarms by what their hosts have signed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from shoal.cli.text import print_warning
from shoal.config.load import make_config, merged
from shoal.errors import UserError
from shoal.identity.keys import identity_path, name_of
from shoal.invitations.entry import BadEntry, Entry, date
from shoal.invitations.invitation import Invitation, is_invitation, read_invitation
from shoal.invitations.pinned import kept
from shoal.untrusted import printable
from shoal_host.directory.choice import (
    DIGITS,
    KNOWN,
    Choice,
    choose,
    is_name,
    known_swarms,
    remember,
    spelled,
    within_reach,
)
from shoal_host.directory.listing import FILE, Listed, Listing, known_directories, read_directories

YOURS = "not named by the host: each node gives its own (--data, --task, --suite or --config)"


def list_swarms(sources: Sequence[str] | None, words: Sequence[str]) -> int:
    """Prints the swarms of the directories; of each of `words` everything that its entry says."""
    console = Console(highlight=False)
    if words and all(is_invitation(word) for word in words):
        for word in words:
            console.print(described(_invited(word)[0]))
        return 0
    listing, known = _listing(sources), known_swarms()
    if words:
        for word in words:
            if not is_name(word):
                raise UserError(f"--list shows swarms by their names: {word!r} is none")
            console.print(described(choose(listing, word, known)))
        return 0
    console.print(table(listing, known) if listing.entries else "no swarm is listed")
    for one in listing.unusable:
        what = f"{one.what}: " if one.what else ""  # what is wrong with a whole directory names it
        console.print(Text(printable(f"left out: {what}{one.why}", 400), "yellow"), soft_wrap=True)
    if listing.entries:
        where = "".join(f" --directory {source}" for source in sources or ())
        console.print(
            Text(f"\nshoal join NAME{where} joins one; with --list it only shows all that NAME says"), soft_wrap=True
        )
    return 0


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
        choice, secret = _invited(*words)
        entry, lost = choice.listed.entry, list[str]()
    else:
        listing, secret = _listing(args.directory, word), ""
        if len(words) > 1:
            raise UserError(f"'{word}' stands alone: its entry has the addresses")
        choice = choose(listing, word, known_swarms())
        entry, lost = within_reach(choice.listed, args.allow_private)
    _check_given(entry.name, entry, given, args.config is not None)
    make_config(entry.settings, f"the entry '{entry.name}'")
    if not args.quiet:
        shown = Text(printable(in_one_line(choice, bool(secret)), 2000)) if is_invitation(word) else described(choice)
        Console(highlight=False).print(shown, soft_wrap=is_invitation(word))
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    if choice.note:
        print_warning(errors, choice.note)
    if lost:
        print_warning(errors, f"left out, since nobody knows the address: {printable(', '.join(lost), 400)}")
    files = kept(entry, secret)
    remember(entry)
    return merged(entry.settings, {"network": files})


def invited_network(words: Sequence[str]) -> dict[str, Any]:
    """The settings of `[network]` by which the swarm of an invitation is heard without joining it, once it is shown
    whose swarm that is. `words`: the invitation, and nothing else. Raises `UserError`."""
    choice, secret = _invited(*words)
    entry = choice.listed.entry
    shown = Text(printable(in_one_line(choice, bool(secret), "watches"), 2000))
    Console(highlight=False).print(shown, soft_wrap=True)
    files = kept(entry, secret)
    remember(entry)
    return {**entry.settings["network"], **files}


def in_one_line(choice: Choice, private: bool, does: str = "joins") -> str:
    """What is done with an invitation."""
    entry = choice.listed.entry
    host = f"{entry.host} (key {entry.key[:DIGITS]}, {'new' if choice.is_new else 'known'})"
    judges = f"; judge: {', '.join(map(_judge, entry.judges))}" if entry.judges else ""
    kind = "private swarm" if private else "swarm"
    tasks = entry.tasks or YOURS
    return f"{does} the {kind} {entry.swarm} of {host}: connects to {', '.join(entry.relays)}{judges}; tasks: {tasks}"


def _invited(word: str, *others: str) -> tuple[Choice, str]:
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
    return Choice(Listed(invitation.signed, "an invitation"), entry.name not in known), invitation.secret


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


def described(choice: Choice) -> Group:
    """All that an entry says, as text of a stranger."""
    entry = choice.listed.entry
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")

    def row(label: str, *values: str) -> None:
        for value in values:
            grid.add_row(label, Text(printable(value, 400)))
            label = ""

    state = "new: the name belongs to this key from your first join on" if choice.is_new else "known"
    row("host", f"{entry.host}, key {entry.key[:DIGITS]} ({state})")
    row("swarm", entry.swarm)
    if entry.certificate:
        row("certificate", f"SHA-256 {entry.certificate}")
    row("tasks", str(entry.tasks or YOURS))
    row("relays", *entry.relays)
    row("judges", *(_judge(address) for address in entry.judges))
    row("rules", *entry.rules)
    row("holds", f"signed on {date(entry.signed)}, until {date(entry.expires)}; from {choice.listed.source}")
    head = Text(entry.name, "bold").append(f"  {printable(entry.about)}" if entry.about else "", "not bold")
    return Group(head, grid)


def table(listing: Listing, known: dict[str, str]) -> Table:
    """A row for each swarm."""
    found = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    names = [one.entry.name for one in listing.entries]
    for column in ("name", "host", "tasks", "relays", "about"):
        found.add_column(column, overflow="fold", no_wrap=column in ("name", "host"))
    for one in listing.entries:
        entry = one.entry
        alone = names.count(entry.name) == 1 and known.get(entry.name, entry.key) == entry.key
        found.add_row(
            Text(entry.name, "bold"),
            Text("\n".join([entry.host, *([] if alone else [spelled(entry)]), *_state(entry, known)])),
            Text(printable(str(entry.tasks or "see its rules"), 200)),
            Text("\n".join(printable(relay, 400) for relay in entry.relays)),
            Text(printable(entry.about)),
        )
    return found


def _state(entry: Entry, known: dict[str, str]) -> list[str]:
    if entry.name not in known:
        return []
    return ["(known)" if known[entry.name] == entry.key else "(ANOTHER HOST)"]


def _judge(address: str) -> str:
    url, _, key = address.partition("#")
    return f"{url} ({name_of(bytes.fromhex(key))})"


def _listing(sources: Sequence[str] | None, word: str = "") -> Listing:
    sources = sources or known_directories()
    if not sources:
        path = identity_path().with_name(FILE)
        hint = f"give --directory FILE or URL, or write one a line into {path}"
        if word:
            raise UserError(
                f"'{word}' is no endpoint: write HOST:PORT, as relay.example.org:7447; for a swarm by its name, {hint}"
            )
        raise UserError(f"no directory of swarms is known: {hint}")
    return read_directories(sources, time.time())
