"""Kills nodes and relays of a real swarm at random moments, and looks at what is left.

    python benchmarks/faults.py [--seconds 600] [--seed 0] [--json]

Two relays that know each other and five `shoal join` of guppy with one thread each. SIGKILL strikes one of the seven
every few seconds; it comes back after a moment, nodes by `--resume`. Each node notes what each update learned from, so
that afterwards it can be told: nothing was learned from twice, no state was lost (rounds go forward, at most the one in
hand is done again), and everybody trains on with the others' rollouts. The exit code is 1 if not.

    python benchmarks/faults.py node NOTES WORD ...     # `shoal WORD ...` with the notes: what it starts
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RELAYS, NODES = 2, 5
PORT = 18_600
KILL_EVERY = (2.0, 7.0)
"""Seconds between two kills."""
BACK_AFTER = (0.0, 3.0)
"""Seconds until what was killed is started again."""
CALM = 120.0
"""Seconds that the survivors have at the end to show that they train on."""


def noted(notes: Path, words: Sequence[str]) -> int:
    """`shoal WORDS`, which notes each update: its round, and which rollouts of others it learned from."""
    from shoal.cli.main import main as shoal
    from shoal.learn.learner import GRPOLearner

    update = GRPOLearner.update

    def noting(self: Any, scored: Sequence[Any], seed: int = 0) -> Any:
        result = update(self, scored, seed)
        own = scored[0].rollout
        others = [[s.rollout.node, s.rollout.round, s.rollout.slot] for s in scored if s.rollout.node != own.node]
        with notes.open("a") as file:
            file.write(json.dumps({"life": os.getpid(), "round": own.round, "others": others}) + "\n")
        return result

    GRPOLearner.update = noting  # type: ignore[method-assign]
    return shoal(words)


@dataclass
class Member:
    """A relay or a node, over all its lives."""

    name: str
    folder: Path
    words: list[str]
    process: subprocess.Popen[bytes] | None = None
    back_at: float = 0.0
    kills: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def is_node(self) -> bool:
        return self.name.startswith("node")

    @property
    def notes(self) -> list[dict[str, Any]]:
        """A line that a kill cut short is left out."""
        file = self.folder / "notes.jsonl"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        words = [sys.executable, "-m", "shoal", *self.words]
        if self.is_node:
            run = self.folder / "run"
            whence = ["--resume", str(run)] if (run / "config.toml").exists() else [*self.words, "--out", str(run)]
            words = [sys.executable, __file__, "node", str(self.folder / "notes.jsonl"), "join", *whence, "--quiet"]
        environment = os.environ | {"SHOAL_HOME": str(self.folder / "home")}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.kills += 1

    def look(self) -> None:
        """Starts it again if it is time, and notes if it ended by itself."""
        if self.process is not None and self.process.poll() is not None and not self.back_at:
            log = (self.folder / "log").read_text(errors="replace")[-500:]
            self.failures.append(f"{self.name} ended with {self.process.returncode}: {log}")
            self.back_at = time.monotonic()
        if self.back_at and time.monotonic() >= self.back_at:
            self.back_at = 0.0
            self.start()


def members(folder: Path) -> list[Member]:
    where = [f"127.0.0.1:{PORT + n}" for n in range(RELAYS)]
    everybody = []
    for n, own in enumerate(where):
        others = [word for other in where if other != own for word in ("--connect", other)]
        words = ["relay", "--listen", own, "--exempt", "127.0.0.1", *others]
        everybody.append(Member(f"relay-{n}", folder / f"relay-{n}", words))
    for n in range(NODES):
        order = where if n % 2 else where[::-1]
        words = [*order, "--swarm", "faults", "--rounds", "1000000", "--threads", "1", "--seed", str(n)]
        words += ["--eval-every", "0", "--eval-samples", "1", "--eval-questions", "1"]
        everybody.append(Member(f"node-{n}", folder / f"node-{n}", words))
    return everybody


def strike(everybody: Sequence[Member], seconds: float, rng: random.Random) -> None:
    """The time of faults."""
    end = time.monotonic() + seconds
    next_kill = time.monotonic() + 20
    while time.monotonic() < end:
        for member in everybody:
            member.look()
        if time.monotonic() >= next_kill:
            next_kill = time.monotonic() + rng.uniform(*KILL_EVERY)
            alive = [member for member in everybody if not member.back_at]
            if alive:
                victim = rng.choice(alive)
                victim.kill()
                victim.back_at = time.monotonic() + rng.uniform(*BACK_AFTER)
        time.sleep(0.05)


def train_on(everybody: Sequence[Member]) -> set[str]:
    """Names of the nodes that, left alone, went on for three rounds and learned from others."""
    nodes = [member for member in everybody if member.is_node]
    before = {member.name: len(member.notes) for member in nodes}
    done: set[str] = set()
    end = time.monotonic() + CALM
    while time.monotonic() < end and len(done) < len(nodes):
        for member in everybody:
            member.look()
        for member in nodes:
            since = member.notes[before[member.name] :]
            if len(since) >= 3 and any(note["others"] for note in since):
                done.add(member.name)
        time.sleep(0.5)
    return done


def verdict(member: Member) -> dict[str, int]:
    """What a node's notes say. A round that was lost with a kill is done again: what counts is its last time."""
    notes, again, lost = member.notes, 0, 0
    latest: dict[int, dict[str, Any]] = {}
    for before, note in zip([None, *notes], notes, strict=False):
        if before is not None and before["life"] != note["life"]:
            again += note["round"] == before["round"]
            lost += max(0, before["round"] - note["round"])
        elif before is not None:
            lost += note["round"] != before["round"] + 1
        latest[note["round"]] = note
    times = Counter(tuple(other) for note in latest.values() for other in note["others"])
    gaps = len(range(min(latest, default=1), max(latest, default=0) + 1)) - len(latest)
    return {
        "lives": len({note["life"] for note in notes}),
        "rounds": len(latest),
        "rollouts of others learned from": times.total(),
        "learned from twice": sum(count > 1 for count in times.values()),
        "rounds done again after a kill": again,
        "rounds lost beyond the one in hand": lost + gaps,
    }


def main() -> None:
    if sys.argv[1:2] == ["node"]:
        sys.exit(noted(Path(sys.argv[2]), sys.argv[3:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="leave the folders of all here")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    everybody = members(folder)
    try:
        for member in everybody:
            member.start()
        strike(everybody, args.seconds, random.Random(args.seed))
        survivors = train_on(everybody)
    finally:
        for member in everybody:
            if member.process is not None and member.process.poll() is None:
                member.process.kill()
                member.process.wait()
    nodes = [member for member in everybody if member.is_node]
    figures: Counter[str] = Counter()
    figures["kills of nodes"] = sum(member.kills for member in nodes)
    figures["kills of relays"] = sum(member.kills for member in everybody if not member.is_node)
    for member in nodes:
        figures.update(verdict(member))
    figures["nodes that train on"] = len(survivors)
    failures = [failure for member in everybody for failure in member.failures]
    figures["ended by themselves"] = len(failures)
    if not args.keep:
        shutil.rmtree(folder, ignore_errors=True)
    good = len(survivors) == NODES and not failures
    good = good and not figures["learned from twice"] and not figures["rounds lost beyond the one in hand"]
    if args.json:
        names = ("learned from twice", "rounds lost beyond the one in hand", "ended by themselves")
        print(json.dumps({"nodes that train on": len(survivors) / NODES, **{name: figures[name] for name in names}}))
    else:
        for name, value in figures.items():
            print(f"{name:40} {value:8}")
        print(*failures, sep="\n")
    sys.exit(not good)


if __name__ == "__main__":
    main()
