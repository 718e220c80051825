"""`shoal judge`: serves until it is stopped."""

import argparse
import contextlib
import sys
import time
from pathlib import Path

from shoal.config.load import make_config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal_host.judge.questions import Questions
from shoal_host.judge.records import Records
from shoal_host.judge.rules import Terms
from shoal_host.judge.scoring import Scoring
from shoal_host.judge.server import serve
from shoal_host.judge.service import Service
from shoal_web.serving.server import address_of, listening

HELP = """Asks nodes held-out questions after their rounds, one answer each, and keeps the scores: pass@1 by a third
party.

  shoal judge --suite pond --data judge               anybody can ask it on port 7460
  shoal watch --judge judge                           the leaderboard, in a browser; /leaderboard has it as JSON

Nodes ask it with --judges http://HOST:7460#KEY. The folder holds its key and its records: keep the key private, since
its questions follow from it, and back both up together. It speaks plain HTTP; statements are signed, and for privacy
put a proxy before it (docs/guides/judge.md)."""
LISTEN = "0.0.0.0:7460"
TERMS = {
    "limit": "seconds for an answer",
    "interval": "seconds between a node's questions",
    "work": "bits of work for a new key, 0 to 20",
    "newcomers": "new keys a minute",
    "address_newcomers": "new keys of one address each minute",
}
"""Flags of `Terms`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `shoal judge`."""
    terms = Terms()
    add = parser.add_argument
    add("--listen", default=LISTEN, metavar="HOST:PORT", help=f"where nodes ask (default {LISTEN})")
    add("--data", type=Path, metavar="DIR", help="its folder: key and records; made if absent")
    add("--suite", default="pond", metavar="NAME", help="the suite of tasks to ask from (default pond)")
    add("--task", action="append", default=[], metavar="NAME", help="only this task of it; repeatable")
    add("--answer", default="task", metavar="FORM", help="as the swarm's nodes have it (default: what each task says)")
    for name, text in TERMS.items():
        default = getattr(terms, name)
        help = f"{text} (default {default:g})"
        add(_flag(name), type=type(default), default=default, metavar="N", help=help)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def command(args: argparse.Namespace) -> int:
    """`shoal judge`."""
    if args.data is None:
        raise UserError("--data DIR is needed: the folder for the judge's key and records")
    terms = {name: getattr(args, name) for name in TERMS}
    for name, value in terms.items():
        if name != "work" and not value > 0:
            raise UserError(f"{_flag(name)} must be above 0")
    if not 0 <= args.work <= 20:
        raise UserError("--work is 0 to 20")
    offset = time.time() - time.monotonic()  # so that the clock never jumps
    where = address_of(args.listen, LISTEN)
    settings = {"suite": args.suite, "only": args.task, "answer": args.answer}
    config = make_config({"tasks": settings}, "the command line").tasks
    with contextlib.ExitStack() as stack:
        tasks = Tasks(config)
        tasks.refuse_environments("a judge")
        bound = stack.enter_context(listening(*where))
        records = stack.enter_context(contextlib.closing(Records(args.data)))
        identity = Identity.load_or_create(args.data / "identity")
        questions = Questions(tasks, identity)
        scoring = Scoring(Verifier(config), lambda text: print(f"shoal: {text}", file=sys.stderr))
        stack.callback(scoring.close)
        service = Service(identity, questions, records, scoring, Terms(**terms), lambda: offset + time.monotonic())
        return serve(service, bound)
