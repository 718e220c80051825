"""`shoal id`: shows this machine's identity in swarms."""

import argparse
import json

from shoal.identity.keys import Identity, identity_path

HELP = """Shows this machine's identity in swarms, which is created on first use. The private key is one file: copy it
to keep it, or to the same place on another machine to move it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def command(args: argparse.Namespace) -> int:
    path = identity_path()
    identity = Identity.load_or_create(path)
    facts = {"name": identity.name, "key": identity.id, "file": str(path)}
    print(json.dumps(facts) if args.json else "\n".join(f"{label:<8}  {value}" for label, value in facts.items()))
    return 0
