"""`shoal announce`: makes a directory of public swarms, or adds to one."""

import argparse
import time
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from shoal.config.load import read_config
from shoal.errors import UserError
from shoal.identity.keys import Identity, identity_path
from shoal.invitations.entry import DAY, LONGEST, BadEntry, Entry, SignedEntry, date, sign_entry
from shoal.runs.disk import write_atomically
from shoal.untrusted import printable
from shoal_host.directory.listing import directory_of, read_directory

HELP = """Signs what a swarm's host says of it and adds it to a directory: a file that any web server can serve. Entries
that others have signed are added as they are (docs/guides/host.md).

  shoal announce lagoon.toml --to swarms.json       signs, with this machine's identity (`shoal id`)
  shoal announce theirs.json --to swarms.json       takes entries that others have signed
  shoal join --list --directory swarms.json         what it says

It replaces an older entry of the same host and name, and drops those that have expired."""
DAYS = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("entries", nargs="+", type=Path, metavar="ENTRY", help="a TOML file to sign, or a directory")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="the directory; made if absent")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the host's private key (default: that of `shoal id`)")
    parser.add_argument("--days", type=int, default=DAYS, metavar="N", help=f"days until it expires (default: {DAYS})")


def command(args: argparse.Namespace) -> int:
    """`shoal announce`."""
    if not 1 <= args.days <= LONGEST // DAY:
        raise UserError(f"--days must be from 1 to {LONGEST // DAY}")
    now = int(time.time())
    kept: dict[tuple[str, str], SignedEntry] = {}
    sources = [*([args.to] if args.to.exists() else []), *args.entries]
    left_out = []
    for path in sources:
        if path.suffix == ".toml":
            identity = Identity.load(args.key) if args.key else Identity.load_or_create(identity_path())
            found = [signed_entry(path, identity, now, args.days)]
        else:
            listing = read_directory(str(path), now)
            found = [one.signed for one in listing.entries]
            left_out += listing.unusable
        for one in found:
            place = one.entry.name, one.entry.key
            if place not in kept or kept[place].entry.signed <= one.entry.signed:
                kept[place] = one
    entries = [kept[place] for place in sorted(kept)]
    write_atomically(args.to, directory_of(entries))
    console = Console(highlight=False, soft_wrap=True)
    for bad in left_out:
        console.print(Text(printable(f"left out: {bad.what} of {bad.source}: {bad.why}", 400), "yellow"))
    for signed in entries:
        entry = signed.entry
        console.print(Text(f"{entry.name}  {entry.host}, until {date(entry.expires)}"))
    console.print(Text(f"{args.to}: shoal join --list --directory {args.to}"))
    return 0


def signed_entry(path: Path, identity: Identity, now: int, days: int) -> SignedEntry:
    """The entry that a host wrote in TOML, signed. Raises `UserError`."""
    said: dict[str, Any] = read_config(path)
    if fixed := sorted({"version", "key", "signed", "expires"} & said.keys()):
        raise UserError(f"{path}: leave out {fixed[0]}: signing sets it")
    named = {"swarm": said["name"]} if "name" in said else {}
    whole = {**named, **said, "key": identity.id, "signed": now, "expires": now + days * DAY}
    try:
        return sign_entry(msgspec.convert(whole, Entry), identity)
    except (msgspec.ValidationError, BadEntry) as error:
        raise UserError(f"{path} is no entry: {printable(str(error), 200)} (docs/guides/host.md)") from None
