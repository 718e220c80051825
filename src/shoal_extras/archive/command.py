"""`shoal archive`: keep what a swarm shares, put archives together, and see and take what they have."""

import argparse
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.cli.flags import add_own_code, add_settings, config_of, given_settings
from shoal.cli.swarms import swarm_settings
from shoal.errors import UserError
from shoal.runs.swarm_status import reasons
from shoal.signals import on_stop
from shoal.untrusted import json_safe, printable

HELP = """Keeps what a swarm shares in a folder: a data set in Parquet, which anybody can verify (`shoal verify`) and
learn from. Rewards are computed by the tasks that are named as for `shoal join`. Stop it by Ctrl-C.

  shoal archive RELAY|PLACE FOLDER              keeps what comes; into an archive that is there, too
  shoal archive merge ONE TWO --to FOLDER       both together; the same bytes in any order
  shoal archive prune FOLDER --since 2026-11-01 --only chain_sum --live
  shoal archive stats FOLDER                    who, what, how much, and how much is right
  shoal archive export FOLDER --form sft --to DATA       or preference, grpo: data sets for TRL's trainers
  shoal archive withdraw FOLDER --swarm lagoon  signed: what this node shared is left out from now on"""
ACTIONS: Final = ("merge", "prune", "stats", "export", "withdraw")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="*", metavar="WORD", help="an action and folders; or a swarm and a folder")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="where merge and export write")
    parser.add_argument("--since", type=day, default=0.0, metavar="DAY", help="prune: keep what was signed since")
    parser.add_argument("--until", type=day, default=float("inf"), metavar="DAY", help="prune: ... and before")
    parser.add_argument("--live", action="store_true", help="prune: keep groups whose rewards differ")
    parser.add_argument("--form", choices=("sft", "preference", "grpo"), default="sft", help="of an export")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file")
    parser.add_argument("--allow-code", action="store_true", help="run the code that the file names: if you trust it")
    add_own_code(parser)
    network = [f"network.{name}" for name in ("name", "transport", "listen", "secret_file", "tls")]
    add_settings(parser, ["tasks.suite", "tasks.only", *network])


def command(args: argparse.Namespace) -> int:
    action, *folders = args.what or [""]
    if action not in ACTIONS:
        return _follow(args)
    if not folders or (len(folders) > 1 and action != "merge"):
        raise UserError(f"shoal archive {action} takes {'folders' if action == 'merge' else 'one folder'}")
    if action in ("merge", "export") and args.to is None:
        raise UserError(f"shoal archive {action} needs --to FOLDER")
    if action == "export":
        from shoal_extras.archive.contents import export

        done: dict[str, Any] = {"rows": export(Path(folders[0]), args.form, args.to)}
    else:
        done = (_stats if action == "stats" else _rewrite)(args, action, list(map(Path, folders)))
    return _told(args, done)


def _told(args: argparse.Namespace, done: dict[str, Any]) -> int:
    print(json.dumps(json_safe(done)) if args.json else reasons({n: done[n] for n in done if done[n]}) or "nothing")
    return 0


def _rewrite(args: argparse.Namespace, action: str, folders: list[Path]) -> dict[str, Any]:
    """Merges archives, leaves out of one what is not asked for, or withdraws from it."""
    from shoal.identity.keys import Identity, identity_path
    from shoal.membership.settings import secret_of
    from shoal_extras.archive.format import Row
    from shoal_extras.archive.merge import rewrite, withdraw
    from shoal_extras.archive.worker import Found

    given = given_settings(args)
    config = config_of(args.config, given, args.allow_code, ("network",))
    to, only = args.to if action == "merge" else folders[0], given.get("tasks", {}).get("only", [])
    if action == "withdraw":
        withdraw(to, Identity.load(identity_path()), config.network.name, time.time())
    if (to / "groups").is_dir() and to not in folders:
        folders.append(to)

    def keep(row: Row, found: Found) -> bool:
        live = row.rewards is not None and max(row.rewards) - min(row.rewards) > 1e-6
        asked = not only or row.opened().rollout.question.task in only
        return args.since <= found.time < args.until and asked and (live or not args.live)

    with Console(stderr=True).status("reading and writing"):
        return dict(rewrite(folders, to, keep, secret_of(config).context))


def _stats(args: argparse.Namespace, action: str, folders: list[Path]) -> dict[str, Any]:
    from shoal.identity.keys import name_of
    from shoal_extras.archive.contents import SHOWN, Stats, signed_rows

    stats = Stats()
    for row, said in signed_rows(folders[0]):
        stats.add(row, said)
    told = stats.as_object()
    if args.json:
        return told
    table = Table("task", "model", "answers", "right", box=None, pad_edge=False, header_style="dim")
    for (task, model), answers in sorted(stats.scored.items()):
        words = Text(printable(task, 60)), Text(printable(model, 60))
        table.add_row(*words, f"{answers:,}", f"{stats.rate(task, model):.3f}")
    Console().print(table)
    for key, rollouts in stats.makers.most_common(SHOWN):
        print(f"{name_of(bytes.fromhex(key))}: {rollouts:,} rollouts")
    return {name: told[name] for name in ("groups", "completions", "bytes")} | {"keys": len(stats.makers)}


def _follow(args: argparse.Namespace) -> int:
    if len(args.what) < 2 and not given_settings(args).get("network", {}).get("listen"):
        raise UserError("name whom to follow and a folder: shoal archive RELAY|PLACE FOLDER")
    *places, folder = args.what
    given = swarm_settings(places, given_settings(args), args.json)
    config = config_of(args.config, given, args.allow_code)
    from shoal_extras.archive.follow import Keeper, follow

    stopped = False

    def stop() -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True

    with Console(stderr=True).status(f"following {config.network.name}") as status, on_stop(stop):

        def tell(keeper: Keeper) -> None:
            left = f"; left out: {reasons(keeper.left_out)}" if keeper.left_out else ""
            status.update(Text(f"{config.network.name}: {keeper.kept:,} rollouts kept{left}"))

        keeper = follow(config, Path(folder), lambda: stopped, tell)
    return _told(args, {"kept": keeper.kept} | dict(keeper.left_out))


def day(text: str) -> float:
    """A day such as 2026-11-28, or a time, as seconds since 1970. Raises `ValueError`."""
    return datetime.fromisoformat(text).timestamp()
