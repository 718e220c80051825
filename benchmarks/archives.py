"""What archives cost.

python benchmarks/archives.py verify ARCHIVE ...     # rollouts a second of `shoal verify`, three passes
python benchmarks/archives.py memory 2500            # two archives of so many megabytes: memory that merging them takes
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from shoal.identity.keys import Identity
from shoal.rollout import Completion, QuestionId, Rollout
from shoal.wire.rollouts import seal
from shoal_extras.archive.format import Row, begin, chunks, write_part
from shoal_extras.archive.merge import rewrite
from shoal_extras.archive.verify import start_of, verify

TEXT = 60_000  # bytes of an answer


def rates(*archives: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for archive in map(Path, archives):
        passes = [verify(archive, start_of(None)) for _ in range(3)]
        found[archive.name] = {
            "rollouts": passes[0].rollouts,
            "does_not_hold": dict(passes[0].wrong),
            "seconds": [round(one.seconds, 3) for one in passes],
            "rollouts_a_second": [round(one.rollouts / one.seconds) for one in passes],
        }
    return found


def memory(megabytes: str) -> dict[str, object]:
    """Two archives that are merged: each has every second rollout."""
    count = int(float(megabytes) * 1e6 / TEXT)
    maker = Identity.generate()

    def made(numbers: range) -> Iterator[Row]:
        for number in numbers:
            question = QuestionId("chain_sum", "0", "0", number, 0)
            text = Completion.of(os.urandom(TEXT // 2).hex())
            rollout = Rollout(question, "0", (text,), maker.name, number)
            yield Row(seal(rollout, maker, "lagoon", 1.8e9 + number))

    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        one, two, both = (Path(folder) / name for name in ("one", "two", "both"))
        for archive, numbers in ((one, range(0, count, 2)), (two, range(1, count, 2))):
            begin(archive)
            for chunk in chunks(made(numbers)):
                write_part(archive, chunk)
        code = f"import sys; sys.argv = ['', 'merge', {str(one)!r}, {str(two)!r}, {str(both)!r}]; import runpy; "
        done = subprocess.run(
            [sys.executable, "-c", code + f"runpy.run_path({__file__!r}, run_name='__main__')"],
            capture_output=True,
            text=True,
            check=True,
        )
        size = sum(path.stat().st_size for path in both.rglob("*.parquet"))
        return {"rows": count, "envelope_bytes": count * TEXT, "written_bytes": size} | json.loads(done.stdout)


def merge(one: str, two: str, both: str) -> dict[str, object]:
    began = time.perf_counter()
    count = rewrite([Path(one), Path(two)], Path(both))
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = round(time.perf_counter() - began, 1)
    return {
        "kept": count["kept"],
        "merge_seconds": seconds,
        "peak_mb": own // 1024,
        "peak_of_reader_mb": children // 1024,
    }


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    print(json.dumps({"verify": rates, "memory": memory, "merge": merge}[what](*words), indent=1))
