"""The memory that `shoal doctor` expects of a run beside the memory that it takes: peaks of fresh processes.

    python benchmarks/memory.py [CASE ...] [--model MODEL] [--json OUT.json]

A run is the real one, two rounds with two evaluations and its checkpoints, on questions of the suite. Only rewards are
invented (every other completion is right), so that each group is learned from. Answers are kept short, to take minutes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

GGUF = Path(__file__).parents[1] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOL: dict[str, Any] = {
    "tasks": {"suite": "paper"},
    "policy": {"max_completion_length": 32},
    "round": {"nodes": 1, "local": 2, "peers": 0, "workers": 0},
    "evaluation": {"questions": 1},
}


def cases(model: str) -> dict[str, dict[str, Any]]:
    """The settings of each case, without those that all have."""

    def smol(nodes: int = 1, lora_r: int = 0, **learner: Any) -> dict[str, Any]:
        policy = SMOL["policy"] | {"model": [model], "lora_r": lora_r}
        return SMOL | {"policy": policy, "learner": learner, "round": SMOL["round"] | {"nodes": nodes}}

    found = {"guppy": {}}
    found["smol"] = smol()
    shown = {"tasks": {"suite": "pond", "examples": 3}}
    shown["policy"] = SMOL["policy"] | {"model": [model], "max_completion_length": 64}
    return found | {
        "smol-lora": smol(lora_r=8),
        "smol-2-nodes": smol(nodes=2),
        "smol-4-nodes": smol(nodes=4),
        "smol-4-nodes-lora": smol(nodes=4, lora_r=16),
        "smol-examples": smol() | shown,
        "smol-4-nodes-examples": smol(nodes=4) | shown,
    }


def measured(settings: dict[str, Any]) -> int:
    """Peak resident bytes of this process, after a run."""
    from shoal.config.load import make_config
    from shoal.runs.build import Nodes
    from shoal.runs.folder import RunFolder
    from shoal.runs.run import Run
    from shoal.runs.watcher import Watcher
    from shoal.sandbox.verifier import Verifier

    class Alternating(Verifier):
        """Every other completion is right."""

        def score(self, items: Any) -> list[list[float]]:
            return [[float(number % 2) for number, _ in enumerate(answers)] for _, answers in items]

    config = make_config(settings, "the benchmark").resolved()
    with tempfile.TemporaryDirectory() as place, Alternating(config.tasks) as verifier:
        out = Path(place) / "run"
        with RunFolder.create(out, config.to_toml()) as folder, closing(Nodes(config, verifier=verifier)) as nodes:
            Run(nodes, folder, Watcher()).go(threading.Event())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def expected(settings: dict[str, Any]) -> int:
    """The estimate, in bytes."""
    from shoal.config.load import make_config
    from shoal.runs.machine import expected_workers
    from shoal_extras.doctor.forecast import expected_peak, try_apart

    config = make_config(settings, "the benchmark").resolved()
    trials = [try_apart(config, name) for name in config.local_models]
    return expected_peak(config, trials, expected_workers(config))


def apart(what: str, settings: dict[str, Any]) -> Any:
    """The result of `what` in a process of its own."""
    argv = [sys.executable, __file__, "--inside", what, "--settings", json.dumps(settings)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", help=f"of {', '.join(cases(''))} (default: all)")
    parser.add_argument("--model", default=str(GGUF), help="what stands for smol (default: the GGUF file of SmolLM2)")
    parser.add_argument("--threads", type=int, default=0, help="0: one for each core")
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--inside", choices=("measured", "expected"), help=argparse.SUPPRESS)
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps({"measured": measured, "expected": expected}[args.inside](json.loads(args.settings))))
        return
    rows = {}
    print(f"{'case':24}{'expected':>10}{'measured':>10}{'error':>8}   GB")
    known = cases(args.model)
    for name in args.case or known:
        settings = {"rounds": 2, "threads": args.threads, "evaluation": {}} | known[name]
        settings["evaluation"] = {"every": 0, **settings["evaluation"]}
        total, peak = apart("expected", settings), apart("measured", settings)
        rows[name] = {"expected": total, "measured": peak, "error": total / peak - 1}
        print(f"{name:24}{total / 1e9:10.2f}{peak / 1e9:10.2f}{total / peak - 1:+8.1%}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
