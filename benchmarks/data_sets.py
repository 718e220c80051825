"""How long a data set of many short rows takes to open, and how much memory: `python benchmarks/data_sets.py 10000000`.

It writes a JSONL file into a temporary folder, opens it there for the first time and again, each in a process of its
own, and looks up 20,000 rows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

OPEN = """
import resource, sys, time
from shoal.tasks.data.task import data_task
begun = time.monotonic()
task = data_task(path=sys.argv[1])
opened = time.monotonic()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
for seed in range(20_000):
    task.question(seed, 0)
each = (time.monotonic() - opened) / 20_000
print(f"{task.info.train:,} rows in {opened - begun:.2f} s, at most {peak:.0f} MB; {each * 1e6:.1f} us a question")
"""


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sums.jsonl"
        with file.open("w") as stream:
            for n in range(rows):
                stream.write(f'{{"prompt":"{n % 9973} + {n // 7} =","answer":"{n % 9973 + n // 7}"}}\n')
        print(f"{file.stat().st_size / 1e6:.0f} MB of JSON lines")
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        for _ in ("first", "again"):
            subprocess.run([sys.executable, "-c", OPEN, str(file)], env=environment, check=True)
        kept = sum(path.stat().st_size for path in (Path(folder) / "shoal").rglob("*"))
        print(f"{kept / 1e6:.0f} MB in the cache")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
