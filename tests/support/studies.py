"""The folder of a study that never ran: plausible curves, made by formula."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from shoal.runs.tables import LEARNED_SCHEMA
from shoal_lab.study import read_study

ARMS = {"8/0": 0, "6/2": 2, "4/4": 4, "2/6": 6}
FASTER = {0: 1.0, 2: 1.5, 4: 1.9, 6: 1.6}
"""How much faster an arm learns, by J."""
TASKS = ["chain_sum", "gcd", "letter_counting"]


def make_study(
    folder: Path,
    *,
    regimes: Sequence[str] = ("generalists", "specialists"),
    arms: Sequence[str] = tuple(ARMS),
    seeds: int = 5,
    nodes: int = 8,
    rounds: int = 100,
    unfinished: Sequence[tuple[str, str, int]] = (),
    without: Sequence[str] = (),
    **settings: Any,
) -> Path:
    """`unfinished`: cells as (regime, arm, seed); `without`: keys that the metrics lack; `settings`: of the study."""
    study: dict[str, Any] = {
        "title": "Does sharing help where success is rare?",
        "about": "A study that never ran.",
        "expect": ["4/4 learns faster than 8/0.", "2/6 forgets more than 4/4."],
        "seeds": list(range(101, 101 + seeds)),
        "base": {"rounds": rounds, "round": {"nodes": nodes}, "policy": {"model": ["guppy"]}},
        "regimes": {name: {"about": f"nodes are {name}"} for name in regimes},
        "arms": {name: {"round": {"local": 8 - ARMS[name], "peers": ARMS[name]}} for name in arms},
        "contrasts": {
            "sharing": {"treated": "4/4", "control": "8/0", "expect": "above"},
            "too much": {"treated": "2/6", "control": "4/4", "expect": "below"},
            "a little": {"treated": "6/2", "control": "8/0", "expect": "equal", "margin": 0.1},
        },
    } | settings
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(tomli_w.dumps({key: value for key, value in study.items() if value}))
    read = read_study(folder / "study.toml")
    for cell in read.cells():
        path = folder / cell.path
        path.mkdir(parents=True)
        (path / "config.toml").write_text(read.config(cell).to_toml())
        special = "special" in cell.regime
        names = [f"node-{number}" for number in range(1, nodes + 1)]
        rows, learned = _rows(cell.seed, ARMS[cell.arm], names, rounds, special)
        with (path / "metrics.jsonl").open("w") as file:
            for row in rows:
                file.write(json.dumps({k: v for k, v in row.items() if k not in without}) + "\n")
        (path / "learned.parquet").mkdir()
        table = pa.Table.from_pylist(learned, schema=LEARNED_SCHEMA)
        pq.write_table(table, path / "learned.parquet" / "from-round-000001.parquet")
        if (cell.regime, cell.arm, cell.seed) not in unfinished:
            (path / "done.json").write_text(json.dumps({"seconds": 61.5, "rounds": rounds}))
    return folder


def _rows(seed: int, external: int, names: list[str], rounds: int, special: bool) -> tuple[list[Any], list[Any]]:
    chance = random.Random(seed)  # the same in all arms, as far as may be
    luck = 0.8 + 0.4 * chance.random()
    chance = random.Random(f"{seed} {external}")
    rows: list[dict[str, Any]] = []
    learned: list[dict[str, Any]] = []
    speed = 6 * FASTER[external] * luck * (0.9 + 0.2 * chance.random())
    for round in range(rounds + 1):
        for place, name in enumerate(names):
            passed = {}
            for at, task in enumerate(TASKS):
                mine = special and place % len(TASKS) == at
                lateness = 0.0 if mine else (0.15 + 0.02 * place if external else 0.9)
                p = 0.02 + (0.3 if mine else 0.0) + 0.6 / (1 + math.exp(4 - speed * (round / rounds - lateness)))
                passed[task] = min(1.0, max(0.0, p + chance.gauss(0, 0.01)))
            p = sum(passed.values()) / len(passed)
            row: dict[str, Any] = {"round": round, "node": name, "time": 0.0}
            if round % max(1, rounds // 20) == 0:
                row |= {"eval/pass@1": p} | {f"eval/pass@1/{task}": value for task, value in passed.items()}
            if round:
                local = sum(chance.random() < p for _ in range(8)) / 8
                foreign = external / 8 if external else 0.0
                row |= {
                    "reward/local": None if round % 17 == 3 else local,
                    "reward/trained_on": min(1.0, local * (1 + 2 * foreign)),
                    "rollouts/wanted": external,
                    "rollouts/refused": 0,
                    "tokens/generated": int((8 - external) * 8 * (10 + 2 * chance.random())),
                    "tokens/trained": 640,
                    "flops/generate": 1e6 * (8 - external) * (10 + 2 * chance.random()),
                    "flops/learn": 5e6,
                    "learner/steps": 1,
                    "gradient/peers": foreign,
                }
                if external:
                    row |= {"peers/ess": 0.9 - 0.1 * chance.random(), "peers/shortened": 0.0}
                learned += _learned(chance, round, name, names, external, passed)
            rows.append(row)
    return rows, learned


def _learned(
    chance: random.Random, round: int, node: str, names: list[str], external: int, passed: dict[str, float]
) -> list[dict[str, Any]]:
    others = [name for name in names if name != node] or [node]
    rows = []
    for slot in range(8):
        foreign = slot < external and len(names) > 1
        task = chance.choice(TASKS)
        live = foreign or chance.random() < passed[task]
        rows.append(
            {"round": round, "node": node, "maker": chance.choice(others) if foreign else node, "made": round}
            | {"slot": slot, "task": task, "config": "", "seed": 1, "index": round, "live": live}
            | {"mean_reward": 0.5 if live else 0.0, "peer": foreign}
        )
    return rows
