"""`shoal announce`: signs what a swarm's host says of it, and prints the invitation."""

import argparse
import time
from pathlib import Path

import msgspec

from shoal.config.load import read_config
from shoal.errors import UserError
from shoal.identity.keys import Identity, identity_path
from shoal.untrusted import printable
from shoal_host.invitations.entry import DAY, LONGEST, BadEntry, Entry
from shoal_host.invitations.invitation import Invitation, sign_entry, written

HELP = """Signs what a swarm's host says of it and prints an invitation: one line that others paste to join. `shoal
host` does this by itself; this is for relays and judges that you run by hand (docs/guides/host.md).

  shoal announce lagoon.toml                        signs, with this machine's identity (`shoal id`)
  shoal join SHOAL:...                              joins
  shoal join --show SHOAL:...                       what it says"""
DAYS = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("entry", type=Path, metavar="ENTRY", help="a TOML file to sign")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the host's private key (default: that of `shoal id`)")
    parser.add_argument("--days", type=int, default=DAYS, metavar="N", help=f"days until it expires (default: {DAYS})")


def command(args: argparse.Namespace) -> int:
    """`shoal announce`."""
    if not 1 <= args.days <= LONGEST // DAY:
        raise UserError(f"--days must be from 1 to {LONGEST // DAY}")
    identity = Identity.load(args.key) if args.key else Identity.load_or_create(identity_path())
    print(written(signed_entry(args.entry, identity, int(time.time()), args.days)))
    return 0


def signed_entry(path: Path, identity: Identity, now: int, days: int) -> Invitation:
    """The invitation by an entry that a host wrote in TOML. Raises `UserError`."""
    said = read_config(path)
    if fixed := sorted({"version", "key", "signed", "expires"} & said.keys()):
        raise UserError(f"{path}: leave out {fixed[0]}: signing sets it")
    named = {"swarm": said["name"]} if "name" in said else {}
    whole = {**named, **said, "key": identity.id, "signed": now, "expires": now + days * DAY}
    try:
        return sign_entry(msgspec.convert(whole, Entry), identity)
    except (msgspec.ValidationError, BadEntry) as error:
        raise UserError(f"{path} is no entry: {printable(str(error), 200)} (docs/guides/host.md)") from None
