"""`shoal watch`: the window onto runs, judges and live swarms."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.apps.watch import host
from shoal.cli.flags import add_settings, given_settings
from shoal.errors import UserError

if TYPE_CHECKING:
    from shoal.apps.watch.source import Source, Sources

HELP = """Opens a page that shows runs: curves, who learned from whom, every completion, what was refused. Or what a
judge has found, or what the nodes of a live swarm say of themselves.

  shoal watch                        the newest run in runs/, in the browser
  shoal watch runs/one runs/two      side by side
  shoal watch lab/paper              all runs of a study
  shoal watch --judge judge          a judge's data folder, also while it serves; or http://HOST:7460
  shoal watch --swarm reef relay.example.org:7447      a live swarm
  shoal watch --serve runs           hosts all of runs/, also those to come, and opens no browser
  shoal watch --serve --listen 0.0.0.0:8400 runs      for other machines, with a token

It reads and hears, and changes nothing. It answers this machine alone unless --listen says otherwise, and then it asks
for a token, which it prints. What it sends is not encrypted: beyond a network that you trust, put it behind TLS."""
LISTEN = "127.0.0.1:8400"
TITLES = 4
"""That are printed; of more, how many."""
SETTINGS = ["network.lan", "network.secret_file", "network.tls_ca", "network.tls_certificate", "network.tls_key"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `shoal watch`."""
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="of runs or studies (default: newest run)")
    parser.add_argument(
        "--judge", action="append", default=[], metavar="DIR", help="a judge's data folder, or http://HOST:7460"
    )
    parser.add_argument(
        "--swarm",
        nargs="+",
        metavar=("NAME", "ENDPOINT"),
        help="a live swarm, and relays or nodes to reach: HOST:PORT (folders stand before it)",
    )
    parser.add_argument("--serve", action="store_true", help="host it: open no browser, and keep to the port")
    host.add_arguments(parser, LISTEN)
    add_settings(parser, SETTINGS)


def command(args: argparse.Namespace) -> int:
    """`shoal watch`."""
    try:
        import uvicorn  # noqa: F401

        from shoal.apps.watch.server import make_app
    except ImportError as error:
        raise UserError(f"the window needs {error.name}: pip install 'shoal[watch]'") from None
    if given_settings(args) and not args.swarm:
        raise UserError("--lan, --secret-file and --tls-... are for a live swarm: give --swarm NAME too")
    with ExitStack() as stack:
        sources = _sources(args, stack)
        place = stack.enter_context(host.opened_place(args, LISTEN, keep_port=args.serve))
        shown = sources.all()
        threading.Thread(target=_read_ahead, args=(shown[:1],), daemon=True).start()
        titles = ", ".join(source.title for source in shown)
        what = f"watching {titles if 0 < len(shown) <= TITLES else f'{len(shown)} runs'}"
        return host.serve(make_app(sources, place.access), place, what, show=not (args.serve or args.no_open))


def _read_ahead(sources: Sequence[Source]) -> None:
    """While the browser starts."""
    from shoal.apps.watch.tables import BusyError

    for source in sources:
        with suppress(BusyError):
            source.summary()


def _sources(args: argparse.Namespace, stack: ExitStack) -> Sources:
    """What the words name, which `stack` closes; without any, the newest run."""
    from shoal.apps.watch.folders import open_folders
    from shoal.apps.watch.source import Fixed, Together

    given: list[Source] = []
    for judge in args.judge:
        if "://" in judge:
            from shoal.apps.watch.remote import RemoteJudge

            given.append(stack.enter_context(closing(RemoteJudge(judge))))
        else:
            from shoal.apps.watch.judge import JudgeSource

            given.append(JudgeSource(Path(judge)))
    if args.swarm:
        from shoal.apps.watch.swarm import open_swarm

        name, *endpoints = args.swarm
        network = given_settings(args).get("network", {})
        given.append(stack.enter_context(closing(open_swarm(name, endpoints, network))))
    fixed = Fixed(given)
    if given and not args.folders:
        return fixed
    folders = stack.enter_context(closing(open_folders(args.folders)))
    return Together([fixed, folders]) if given else folders
