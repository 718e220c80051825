"""`shoal id`: shows, exports and imports this machine's identity in swarms."""

import argparse
import contextlib
import hashlib
import json
from pathlib import Path

from shoal.errors import UserError
from shoal.identity.keys import Identity, identity_path, replace, write_new

HELP = "Shows this machine's identity in swarms, which is created on first use."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--export", type=Path, metavar="FILE", help="write the private key to a new file")
    action.add_argument(
        "--import", type=Path, metavar="FILE", dest="source", help="use the private key in this file from now on"
    )
    parser.add_argument("--force", action="store_true", help="replace another identity; a copy of it is kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def command(args: argparse.Namespace) -> int:
    if args.force and not args.source:
        raise UserError("--force goes with --import")
    path = identity_path()
    done: dict[str, str] = {}
    if args.source:
        backup = _import(Identity.load(args.source), path, args.force)
        if backup:
            done["backup"] = str(backup)
    identity = Identity.load_or_create(path)
    if args.export:
        try:
            write_new(args.export, identity.to_pem())
        except FileExistsError:
            raise UserError(f"{args.export} exists: choose another file") from None
        done["exported"] = str(args.export)
    facts = {"name": identity.name, "key": identity.id, "file": str(path), **done}
    print(json.dumps(facts) if args.json else "\n".join(f"{label:<8}  {value}" for label, value in facts.items()))
    return 0


def _import(identity: Identity, path: Path, force: bool) -> Path | None:
    """Stores `identity` in `path`. Returns the copy of the identity that it replaced, if there was another one."""
    pem = identity.to_pem()
    try:
        write_new(path, pem)
        return None
    except FileExistsError:
        pass
    name = "unreadable"
    try:
        present = Identity.load(path)
        if present.public == identity.public:
            return None
        name = present.name
    except UserError:
        if not force:
            raise
    if not force:
        raise UserError(f"{path} holds another identity, {name}: --force replaces it and keeps a copy")
    try:
        old = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    backup = path.with_name(f"{path.name}.{name}.{hashlib.sha256(old).hexdigest()[:8]}.bak")
    with contextlib.suppress(FileExistsError):  # the same copy, from before
        write_new(backup, old)
    replace(path, pem)
    return backup
