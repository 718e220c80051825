"""What a study takes beside its cells: cells that sleep, on the local pool or on Ray, on two processors.

    python benchmarks/lab_engines.py pool --cells 24 --seconds 10
    python benchmarks/lab_engines.py ray --cells 24 --seconds 10

Two further cells come first, so that the time does not hold the start of an engine and its processes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal_lab import far_cells
from shoal_lab.processes import run_jobs
from shoal_lab.study import Study

PROCESSES = 2


def sleep(seconds: float, tell: Callable[[int], None]) -> None:
    time.sleep(seconds)
    tell(1)


def far_sleep(
    sources: str, study: Study, cell: Any, bases: bytes, begun: bytes, news: Any, number: int, apart: bool
) -> bytes:
    """A cell of `far_cells.run_on_ray` that sleeps, reports, and sends a folder of 1 MB."""
    sleep(float(study.title), lambda round: news.put((number, round, b"")))
    with tempfile.TemporaryDirectory() as room:
        (Path(room) / "metrics.jsonl").write_bytes(bytes(2**20))
        return far_cells.pack(Path(room))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["pool", "ray"])
    parser.add_argument("--cells", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    count = args.cells + PROCESSES
    begun = time.monotonic()
    if args.engine == "pool":
        events = run_jobs([(sleep, (args.seconds,))] * count, PROCESSES)
    else:
        import ray

        ray.init(num_cpus=PROCESSES, log_to_driver=False)
        far_cells.far_cell = far_sleep
        study = Study.model_validate(
            {"title": str(args.seconds), "seeds": [1], "base": {"round": {"nodes": 1}}, "arms": {"a": {}}}
        )
        folder = Path(tempfile.mkdtemp())
        (folder / "runs" / "main" / "a").mkdir(parents=True)
        events = far_cells.run_on_ray("ray", study, folder, study.runs() * count)
    ends = [time.monotonic() for event in events if event.kind == "done"]
    ideal = args.cells * args.seconds / PROCESSES
    took = ends[-1] - ends[PROCESSES - 1]
    print(f"{args.engine}: {args.cells} cells of {args.seconds:g} s took {took:.2f} s, {took / ideal - 1:+.1%}")
    print(f"start, to the end of the first cells: {ends[PROCESSES - 1] - begun - args.seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
