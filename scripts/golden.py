"""Records what runs give before the code is rearranged, and compares it afterwards, digit by digit.

    python scripts/golden.py record /tmp/before        # at the old commit
    python scripts/golden.py compare /tmp/before       # at the new one, on the same machine: exit code 1 if they differ

Runs: guppy in one process and in two worker processes, guppy killed and resumed, SmolLM2 for three rounds (after
`python scripts/fetch_models.py smollm2`). What depends on the clock is left out. Floating-point sums depend on the
processor, so a record is of no use on another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GUPPY = ["--seed", "7", "--rounds", "8", "--nodes", "3", "--evaluation.every", "4", "--checkpoint-every", "1"]
RUNS = {
    "one-process": [*GUPPY, "--workers", "0", "--threads", "1"],
    "workers": [*GUPPY, "--workers", "2", "--threads", "1"],
    "resumed": [*GUPPY, "--workers", "0", "--threads", "1"],
    "smollm2": [
        *("--model", "smollm2", "--suite", "reef", "--nodes", "2", "--seed", "7", "--rounds", "3"),
        *("--workers", "0", "--threads", "2", "--evaluation.every", "3"),
    ],
}
CLOCK = ("seconds", "time", "tok/s", "tokens_per_second", "/second", "memory", "bytes")
"""Parts of the names of figures that depend on the clock or on memory."""
RENAMED = {
    **{f"{figure}/external": f"{figure}/peers" for figure in ("reward", "gradient")},
    **{f"external/{figure}": f"peers/{figure}" for figure in ("weight", "ess", "nll_gap")},
}
"""Figures with another name in old records."""


def command(folder: Path, words: list[str]) -> list[str]:
    return [sys.executable, "-m", "shoal", "run", *words, "--out", str(folder), "--quiet"]


def run(name: str, folder: Path) -> None:
    """One run in `folder`; "resumed" is killed after its third round and resumed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}
    if name != "resumed":
        subprocess.run(command(folder, RUNS[name]), check=True, env=environment, cwd=ROOT)
        return
    process = subprocess.Popen(command(folder, RUNS[name]), env=environment, cwd=ROOT)
    while process.poll() is None and not (folder / "checkpoints" / "round-000003").is_dir():
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    resume = [sys.executable, "-m", "shoal", "run", "--resume", str(folder), "--quiet"]
    subprocess.run(resume, check=True, env=environment, cwd=ROOT)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl` without what depends on the clock; of a round that was run again, the last."""
    found = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        found[row["round"], row["node"]] = {
            RENAMED.get(k, k): v for k, v in row.items() if not any(part in k for part in CLOCK)
        }
    return [found[key] for key in sorted(found)]


def differences(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    """What differs, in a line each. A figure that only one of them has differs too."""
    if len(before) != len(after):
        return [f"{len(before)} rows before, {len(after)} after"]
    return [
        f"round {one['round']} {one['node']} {name}: {one.get(name)!r} before, {two.get(name)!r} after"
        for one, two in zip(before, after, strict=True)
        for name in sorted(one.keys() | two.keys())
        if one.get(name) != two.get(name)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", choices=RUNS, help="one of the runs; may be repeated")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    bad = False
    for name in args.only or RUNS:
        if args.action == "record":
            run(name, args.folder / name)
            print(f"{name}: {len(rows(args.folder / name))} rows")
            continue
        after = args.folder / f"{name}-after-{time.time_ns()}"
        run(name, after)
        found = differences(rows(args.folder / name), rows(after))
        print(f"{name}: {'equal' if not found else f'{len(found)} figures differ'}", *found[:10], sep="\n  ")
        bad |= bool(found)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
