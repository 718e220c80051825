"""What archives cost.

python benchmarks/archives.py verify ARCHIVE ...     # rollouts a second of `shoal verify`, three passes
python benchmarks/archives.py memory 2500            # two archives of so many megabytes: memory to merge and verify
                                                     # WITHIN="WORDS": programs that are measured run behind these
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal.config.tasks import TasksConfig
from shoal.identity.keys import Identity
from shoal.rollout import Completion, Rollout
from shoal.tasks import Tasks
from shoal.wire.rollouts import seal
from shoal_extras.archive.format import Row, begin, chunks, write_part
from shoal_extras.archive.merge import rewrite
from shoal_extras.archive.verify import start_of, verify

TEXT = 60_000  # bytes of an answer
LETTERS = str.maketrans("0123456789", "ghijklmnop")


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
    maker, tasks = Identity.generate(), Tasks(TasksConfig())

    def made(numbers: range) -> Iterator[Row]:
        for number in numbers:
            [question] = tasks.draw(1, "lagoon", maker.id, number)
            words = os.urandom(TEXT // 2).hex(" ", 8).translate(LETTERS)  # digits take long to score
            rollout = Rollout(question.id, question.hash, (Completion.of(words),), maker.name, number)
            yield Row(seal(rollout, maker, "lagoon", 1.8e9 + number))

    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        one, two, both = (Path(folder) / name for name in ("one", "two", "both"))
        for archive, numbers in ((one, range(0, count, 2)), (two, range(1, count, 2))):
            begin(archive)
            for chunk in chunks(made(numbers)):
                write_part(archive, chunk)
        found: dict[str, object] = {}
        for what, *folders in (("merge", one, two, both), ("verified", both)):
            command = [*os.environ.get("WITHIN", "").split(), sys.executable, __file__, str(what), *map(str, folders)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            found[str(what)] = json.loads(done.stdout)
        size = sum(path.stat().st_size for path in both.rglob("*.parquet"))
        return {"rows": count, "envelope_bytes": count * TEXT, "written_bytes": size, **found}


def merge(one: str, two: str, both: str) -> dict[str, object]:
    began = time.perf_counter()
    count = rewrite([Path(one), Path(two)], Path(both))
    return {"kept": count["kept"], "seconds": round(time.perf_counter() - began, 1), **peaks()}


def verified(archive: str) -> dict[str, object]:
    found = verify(Path(archive), start_of(None))
    return {"rollouts": found.rollouts, "wrong": dict(found.wrong), "seconds": round(found.seconds, 1), **peaks()}


def peaks() -> dict[str, object]:
    """The most memory (MB) of this process, and of the largest of those that it started."""
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"peak_mb": own // 1024, "peak_of_readers_mb": children // 1024}


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    commands: dict[str, Callable[..., dict[str, object]]] = {
        "verify": rates,
        "memory": memory,
        "merge": merge,
        "verified": verified,
    }
    print(json.dumps(commands[what](*words), indent=1))
