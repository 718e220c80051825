"""Runs the benchmarks and prints what was asked for beside what came out.

    python benchmarks/run.py                     # all of them: about an hour on two cores, most of it TRL and GenRL
    python benchmarks/run.py decode guppies      # these
    python benchmarks/run.py --json              # one object of name to ratio

TRL and GenRL are installed into environments of their own, in benchmarks/.peers/. A ratio is of medians within one run;
TRL and GenRL run once, since a step takes them minutes.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEERS = {
    "trl": ["torch==2.13.0", "trl==1.16.0", "transformers==5.23.0"],
    "genrl": ["torch==2.13.0", "gensyn-genrl==0.3.0"],
}
WORKS = ["decode", "update", "round", "guppies"]
ASKED = {
    "decode / transformers generate": 2.5,
    "decode / bound of matrix products": 0.7,
    "update / TRL": 8.0,
    "update / bound of matrix products": 0.6,
    "round / TRL": 10.0,
    "round / GenRL": 10.0,
    "peak memory of update / TRL": 0.5,
    "peak memory of update (GB)": 5.0,
    "round of 8 guppies / plain loop": 4.0,
}
"""What each figure is to be at least, or, of memory, at most."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", choices=[*WORKS, []], help="default: all")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="keep workload and raw figures here; what is there already is used")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, args.repeats)
        figures: dict[str, float] = {}
        for work in args.works or WORKS:
            figures |= getattr(bench, work)()
    if args.json:
        print(json.dumps(figures))
        return
    print(f"{platform.machine()}, {platform.python_version()}, torch {version('torch')}")
    for name, value in figures.items():
        asked = f"{'at most' if 'memory' in name else 'at least'} {ASKED[name]}" if name in ASKED else ""
        print(f"{name:42} {value:8.2f}   {asked}")


class Bench:
    """Runs contenders, each in a process of its own."""

    def __init__(self, folder: Path, repeats: int) -> None:
        self.folder, self.repeats = folder, repeats
        if not (folder / "workload.json").exists():
            self._call([sys.executable, HERE / "workload.py", folder])

    def decode(self) -> dict[str, float]:
        rates = self._ours("decode.py", "decode")
        return {
            "decode / transformers generate": rates["ours"] / rates["theirs"],
            "decode / bound of matrix products": rates["ours"] / rates["bound"],
            "decode, shoal (tokens/s)": rates["ours"],
            "decode, transformers generate (tokens/s)": rates["theirs"],
        }

    def update(self) -> dict[str, float]:
        trl, small = self._peer("trl", "trl"), self._peer("trl", "trl-memory", "--memory")
        ours = self._ours("ours.py", "ours-update", "--batch", self.folder / "trl.json")["figures"]
        return {
            "update / TRL": trl["learn"] / ours["learn"],
            "update / bound of matrix products": ours["bound"] / ours["learn"],
            "peak memory of update / TRL": ours["peak"] / trl["peak"],
            "peak memory of update / TRL checkpointing": ours["peak"] / small["peak"],
            "peak memory of update (GB)": ours["peak"] / 1e9,
            "update, shoal (s)": ours["learn"],
            "update, TRL (s)": trl["learn"],
        }

    def round(self) -> dict[str, float]:
        ours = self._ours("ours.py", "ours-round")["figures"]
        peers = {"TRL": self._peer("trl", "trl"), "GenRL": self._peer("genrl", "genrl")}
        mine = ours["generate"] + ours["learn"]
        ratios = {f"round / {name}": (peer["generate"] + peer["learn"]) / mine for name, peer in peers.items()}
        seconds = {f"round, {name} (s)": peer["generate"] + peer["learn"] for name, peer in peers.items()}
        return {**ratios, "round, shoal (s)": mine, **seconds}

    def guppies(self) -> dict[str, float]:
        seconds = self._ours("guppies.py", "guppies")
        return {
            "round of 8 guppies / plain loop": seconds["plain"] / seconds["ours"],
            "round of 8 guppies, shoal (s)": seconds["ours"],
            "round of 8 guppies, plain loop (s)": seconds["plain"],
        }

    def _ours(self, script: str, name: str, *options: object) -> Any:
        out = self.folder / f"{name}.json"
        self._call([sys.executable, HERE / script, self.folder, out, "--repeats", self.repeats, *options])
        return json.loads(out.read_text())

    def _peer(self, peer: str, name: str, *options: object) -> Any:
        out = self.folder / f"{name}.json"
        if not out.exists():
            self._call([self._environment(peer), HERE / f"peer_{peer}.py", self.folder, out, *options])
        return json.loads(out.read_text())["figures"]

    def _environment(self, peer: str) -> Path:
        """The Python of the peer's own environment, made where it is not there."""
        folder = HERE / ".peers" / peer
        python = folder / "bin/python"
        if not python.exists():
            self._call([sys.executable, "-m", "venv", folder])
            self._call([python, "-m", "pip", "install", "--quiet", *PEERS[peer]])
        return python

    def _call(self, command: Sequence[object]) -> None:
        print("$", *command, file=sys.stderr)
        subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
