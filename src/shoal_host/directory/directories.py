"""Directories of swarms for `shoal join NAME` and `shoal join --list` (entry point `shoal.directories`)."""

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shoal.cli.swarms import Found
from shoal.errors import UserError
from shoal.identity.keys import identity_path
from shoal.invitations.entry import Entry
from shoal.invitations.pinned import known_swarms, spelled
from shoal.untrusted import printable
from shoal_host.directory.choice import choose, within_reach
from shoal_host.directory.listing import FILE, Listing, known_directories, read_directories


class Directories:
    """The swarms of these directories, or of those that the user noted. Raises `UserError` if there are none."""

    def __init__(self, sources: Sequence[str] | None) -> None:
        self._given = sources or ()
        self._sources = sources or known_directories()

    def find(self, word: str, allow_private: bool) -> Found:
        if not self._sources:
            raise UserError(
                f"'{word}' is no endpoint: write HOST:PORT, as relay.example.org:7447; for a swarm by its name, "
                f"{self._hint}"
            )
        choice = choose(read_directories(self._sources, time.time()), word, known_swarms())
        entry, lost = within_reach(choice.listed, allow_private)
        notes = [choice.note] if choice.note else []
        if lost:
            notes.append(f"left out, since nobody knows the address: {printable(', '.join(lost), 400)}")
        return Found(entry, choice.listed.source, choice.is_new, tuple(notes))

    def overview(self) -> RenderableType:
        if not self._sources:
            raise UserError(f"no directory of swarms is known: {self._hint}")
        listing = read_directories(self._sources, time.time())
        shown: list[RenderableType] = [table(listing, known_swarms()) if listing.entries else "no swarm is listed"]
        for one in listing.unusable:
            what = f"{one.what}: " if one.what else ""  # what is wrong with a whole directory names it
            shown.append(Text(printable(f"left out: {what}{one.why}", 400), "yellow"))
        if listing.entries:
            where = "".join(f" --directory {source}" for source in self._given)
            shown.append(Text(f"\nshoal join NAME{where} joins one; with --list it only shows all that NAME says"))
        return Group(*shown)

    @property
    def _hint(self) -> str:
        return f"give --directory FILE or URL, or write one a line into {identity_path().with_name(FILE)}"


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
