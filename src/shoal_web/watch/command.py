"""`shoal watch`: the page of runs, judges and live swarms."""

import argparse
from contextlib import closing
from pathlib import Path

from shoal.cli.flags import add_settings, given_settings
from shoal.cli.swarms import is_invitation, swarm_settings
from shoal.config.own_code import call_offered, offered
from shoal.errors import UserError
from shoal.untrusted import printable
from shoal_web.serving import server
from shoal_web.watch.archive import ArchiveSource, is_archive
from shoal_web.watch.server import make_app
from shoal_web.watch.source import Source
from shoal_web.watch.sources import Sources, checked_folders
from shoal_web.watch.swarm import open_swarm

HELP = """Shows runs in your browser: curves, who learned from whom, every completion, what was refused. It also shows
what a judge has measured, and what the nodes of a live swarm report of themselves.

  shoal watch                        the newest run in runs/
  shoal watch runs/one runs/two      two runs side by side
  shoal watch lab/paper              all runs of a study
  shoal watch lagoon.archive         an archive: who contributed what, and every rollout with its proof
  shoal watch --judge judge          a judge's data folder, also while it serves
  shoal watch --swarm lagoon relay.example.org:7447    a live swarm
  shoal watch --swarm SHOAL:INVITATION                 the same, by the line that `shoal host` prints
  shoal watch /mnt/shared            the swarms in a folder; at a URL: --swarm lagoon s3://bucket/folder
  shoal watch --serve runs           keep serving all of runs/, also runs to come; open no browser
  shoal watch --serve --listen 0.0.0.0:8400 runs       for other machines, with a token

It changes no run. What an invitation brings, a certificate and a secret, is kept beside your identity, as by
`shoal join`. Only this machine can open the page, unless you give --listen: then it asks for a token, which it
prints. The page is not encrypted: outside a network that you trust, put it behind TLS."""
LISTEN = "127.0.0.1:8400"
SOURCES, JUDGE = "shoal.sources", "judge"  # entry points of functions that make a `Source`, and the one of `--judge`
SETTINGS = ["network.secret_file", "network.tls"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `shoal watch`."""
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="run, study, archive, place")
    parser.add_argument("--judge", action="append", type=Path, default=[], metavar="DIR", help="a judge's data folder")
    parser.add_argument("--swarm", nargs="+", metavar=("NAME", "ENDPOINT"), help="a live swarm, and where it is; last")
    parser.add_argument("--serve", action="store_true", help="keep serving: open no browser, take no other port")
    server.add_arguments(parser, LISTEN)
    add_settings(parser, SETTINGS)


def command(args: argparse.Namespace) -> int:
    """`shoal watch`."""
    if given_settings(args) and not args.swarm:
        raise UserError("--secret-file and --tls are for a live swarm: give --swarm NAME too")
    with closing(_sources(args)) as sources, server.opened_place(args, LISTEN, keep_port=args.serve) as place:
        shown = [source.title for source in sources.all()]
        what = f"watching {', '.join(shown) if len(shown) == 1 else f'{len(shown)} runs'}"
        return server.serve(make_app(sources, place.access), place, what, show=not (args.serve or args.no_open))


def _sources(args: argparse.Namespace) -> Sources:
    """What the flags name; the newest run if they name nothing."""
    given = [_judge(folder) for folder in args.judge]
    given += [ArchiveSource(folder, printable(folder.resolve().name)) for folder in args.folders if is_archive(folder)]
    places = [folder for folder in args.folders if (folder / "shoal").is_dir()]
    swarms = ((path.parent.name, str(folder)) for folder in places for path in sorted(folder.glob("shoal/*/open"))[:8])
    given += [open_swarm({"name": name, "connect": [place]}) for name, place in swarms]
    rest = [folder for folder in args.folders if not is_archive(folder) and folder not in places]
    folders = checked_folders(rest) if rest or not (given or args.swarm) else []
    if words := args.swarm:  # last: it has a thread
        invited = any(is_invitation(word) for word in words)
        network = swarm_settings(words, {})["network"] if invited else {"name": words[0], "connect": words[1:]}
        given.append(open_swarm({**network, **given_settings(args).get("network", {})}))
    return Sources(given, folders)


def _judge(folder: Path) -> Source:
    if JUDGE not in offered(SOURCES):
        raise UserError("--judge needs the package shoal_host, which is not installed")
    source: Source = call_offered(SOURCES, JUDGE, folder)
    return source
