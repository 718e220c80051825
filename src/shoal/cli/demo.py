"""`shoal demo`: a pretrained model before and after three minutes of training, and a swarm in a folder."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from shoal.child import environment
from shoal.cli.flags import add_settings, config_of, given_settings
from shoal.config.load import merged
from shoal.display.text import print_paragraph
from shoal.errors import UserError
from shoal.runs.disk import disk_errors
from shoal.runs.folder import CONFIG, read_metrics
from shoal.runs.standing import RIGHT

HELP = """Trains two copies of a small pretrained model on "Which is larger, 36 or 39?" for some three minutes. Shows
what it answers before and after. It is `shoal run` with fixed settings.

  shoal demo
  shoal demo --model my-model/ --threads 2
  shoal demo commons        nodes that never meet learn from each other through a folder; no network"""
MODEL: Final = "smollm2"
SETTINGS: Final[dict[str, Any]] = {
    "rounds": 36,
    "tasks": {"sources": [{"name": "larger"}], "partial_credit": True},
    "policy": {"model": [MODEL], "max_completion_length": 8},
    "learner": {"learning_rate": 1e-5},
    "round": {"nodes": 2},
    "evaluation": {"every": 12, "questions": 48, "samples": 1},
}
"""Chosen on the seeds 0 and 101 to 103. docs/start/demo.md has others, too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=["commons"], help="another demo")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: runs/DATE-TIME)")
    defaults = {"policy.model": MODEL, "rounds": str(SETTINGS["rounds"])}
    add_settings(parser, ["policy.model", "seed", "threads", "rounds"], defaults=defaults)


def command(args: argparse.Namespace) -> int:
    given = given_settings(args)
    settings = merged(SETTINGS, given)
    config = config_of(None, settings, allow_code=False)
    from shoal.cli.session import run_session
    from shoal.runs.session import new_folder  # torch, only now

    out = args.out or new_folder()
    if args.what:
        if given.keys() - {"seed"}:
            raise UserError("shoal demo commons takes --seed and --out alone")
        return run_commons(out, config.seed)
    models = " and ".join(config.policy.model)
    text = f"Two copies of {models} learn from what both try. `shoal run --config {out / CONFIG}` does the same.\n"
    print_paragraph(Console(highlight=False), text, 0)
    return run_session(config, out)


FIRST, LATE = ("ada", "bob", "eve"), "late"
ROUNDS, EVERY = 20, 5
"""Rounds of each of the first, and between two evaluations. The late one has half as many."""
PEERS: Final = 12
"""Rollouts of peers that the late one learns from in a round, beside its own four."""


def run_commons(out: Path, seed: int) -> int:
    """Runs the nodes in turn, and compares. `out`: their folders, and the place. Raises `UserError`."""
    console, place = Console(highlight=False), out / "place"
    with disk_errors(place):
        place.mkdir(parents=True)
    text = (
        f"{', '.join(FIRST)} learn one after the other, never two at a time, and leave what they tried, signed, in the "
        f"folder {place}. Then {LATE} begins with the same untrained model, and learns from what they left. All of it "
        "is `shoal join FOLDER` with guppy, a tiny model, and no network.\n"
    )
    print_paragraph(console, text, 0)
    shares = {name: _join(console, out, name, seed + at, ROUNDS) for at, name in enumerate(FIRST)}
    shares[LATE] = _join(console, out, LATE, seed + len(FIRST), ROUNDS // 2, PEERS)
    table = Table("node", title="right on questions that it never practised")
    for round in (rounds := range(0, ROUNDS + 1, EVERY)):
        table.add_column(f"round {round}" if round else "before", justify="right")
    for name, of in shares.items():
        table.add_row(name, *(f"{of[round]:.0%}" if round in of else "" for round in rounds))
    console.print(table)
    print_paragraph(console, f"\nAnother node goes on from here: shoal join {place} --swarm commons\n", 0)
    return 0


def _join(console: Console, out: Path, name: str, seed: int, rounds: int, peers: int = 4) -> dict[int, float]:
    """Runs one node until it ends; its shares of right answers by round. Raises `UserError`."""
    folder, log, began = out / name, out / f"{name}.log", time.monotonic()
    words = f"--swarm commons --model guppy --rounds {rounds} --seed {seed} --peers {peers} --eval-every {EVERY}"
    command = [sys.executable, "-m", "shoal", "join", str(out / "place"), "--out", str(folder), *words.split()]
    own = environment(SHOAL_HOME=os.fspath((out / "homes" / name).absolute()))
    with log.open("w") as file, console.status(f"{name} learns, {rounds} rounds"):
        process = subprocess.run([*command, "--quiet"], env=own, stdout=file, stderr=file)
    if process.returncode:
        raise UserError(f"{name} ended with exit code {process.returncode}: see {log}")
    rows = read_metrics(folder)
    shares = {int(row["round"]): float(row[RIGHT]) for row in rows if row.get(RIGHT) is not None}
    taken = sum(row.get("rollouts/sampled") or 0 for row in rows)
    spent = f"{rounds} rounds in {time.monotonic() - began:.0f} s, with {taken:.0f} rollouts of others"
    console.print(f"{name}: {shares[max(shares)]:.0%} right, {shares[0]:.0%} before ({spent})")
    return shares
