"""What a swarm in a folder costs: listing, joining where much is kept, and rounds a second beside a relay's.

python benchmarks/places.py scan        # 1,000 writers with 10 files each: the first look, and those after it
python benchmarks/places.py join        # 10 GB in a place: what a node that joins reads
python benchmarks/places.py rounds      # two nodes through a relay, then through a folder: rounds a second
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from shoal.identity.keys import Identity
from shoal.runs.folder import read_metrics
from shoal.transports.base import TransportContext
from shoal_extras.places.files import name_of, pack
from shoal_extras.places.listing import Listing
from shoal_extras.places.reader import Place, Reader
from shoal_extras.places.store import FolderStore

PREFIX = "shoal/lagoon/open"


def put(folder: Path, key: str, data: bytes, at: float, size: int = 0) -> None:
    """A file of a node; with a `size`, one with a hole in place of its content."""
    path = folder / PREFIX / name_of(data, key, at).path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if size:
        os.truncate(path, size)


def scan(folder: Path) -> dict[str, float]:
    now = time.time()
    for writer in range(1000):
        key = f"{writer:064x}"
        for number in range(10):
            put(folder, key, pack([("rollouts", b"%d %d" % (writer, number) + bytes(4000))]), now - 30 * number)
    listing, found = Listing(FolderStore(str(folder)), PREFIX, 7 * 86_400), {}
    for look in ("first", "second", "later"):
        began = time.perf_counter()
        count = sum(1 for _ in listing.look(time.time()))
        found[f"{look}_files"], found[f"{look}_seconds"] = count, round(time.perf_counter() - began, 4)
    put(folder, "f" * 64, pack([]), time.time())
    began = time.perf_counter()
    found["one_more_files"] = sum(1 for _ in listing.look(time.time()))
    found["one_more_seconds"] = round(time.perf_counter() - began, 4)
    got: list[int] = []
    context = TransportContext("lagoon", Identity.generate(), lambda channel, address, data: got.append(len(data)))
    reader, place = Reader(context, Counter()), Place(FolderStore(str(folder)), PREFIX)
    began = time.perf_counter()
    reader.ask(10_000)
    reader.look(place)
    reader.feed()
    found["listed_and_512_read_seconds"] = round(time.perf_counter() - began, 4)
    found["messages"] = len(got)
    return found


def join(folder: Path) -> dict[str, float]:
    now = time.time()
    for writer in range(25):
        for number in range(100):  # of a week, a hundred times 4 MiB of each writer
            at = now - number * 6000 - writer
            put(folder, f"{writer:064x}", pack([("rollouts", bytes(4000))] * (900 if number < 2 else 1)), at)
            if number >= 2:
                put(folder, f"{writer:064x}", b"%d" % number, at - 1, 4 << 20)
    read: list[int] = []

    class Counted(FolderStore):
        def read(self, path: str, most: int) -> bytes:
            data = super().read(path, most)
            read.append(len(data))
            return data

    got: list[int] = []
    context = TransportContext("lagoon", Identity.generate(), lambda channel, address, data: got.append(len(data)))
    reader, place = Reader(context, Counter()), Place(Counted(str(folder)), PREFIX)
    there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    began = time.perf_counter()
    for _ in range(20):  # rounds that learn from four rollouts each
        reader.ask(16)
        reader.look(place)
        reader.feed()
    return {
        "there_bytes": there,
        "read_bytes": sum(read),
        "files": len(read),
        "messages": len(got),
        "handed_on_bytes": sum(got),
        "seconds": round(time.perf_counter() - began, 3),
    }


def relay(folder: Path) -> dict[str, float]:
    words = ["relay", "--listen", "tcp/127.0.0.1:17447"]
    carrier = subprocess.Popen([sys.executable, "-m", "shoal", *words], stdout=-3, stderr=-3)
    try:
        return rounds(folder, "127.0.0.1:17447")
    finally:
        carrier.kill()
        carrier.wait()


def through_folder(folder: Path) -> dict[str, float]:
    (folder / "shared").mkdir()
    return rounds(folder, str(folder / "shared"))


def rounds(folder: Path, where: str, seconds: float = 15.0) -> dict[str, float]:
    running, runs = [], [folder / f"run-{n}" for n in range(2)]
    for n, run in enumerate(runs):
        few = ["--eval-every", "0", "--eval-questions", "1", "--eval-samples", "1", "--checkpoint-every", "0"]
        words = ["join", where, "--rounds", "1000000", *few, "--threads", "1", "--seed", str(n), "--out", str(run)]
        home = os.environ | {"SHOAL_HOME": str(folder / f"home-{n}")}
        running.append(subprocess.Popen([sys.executable, "-m", "shoal", *words], stdout=-3, stderr=-3, env=home))
    try:
        while not all((run / "swarm.json").exists() and len(read_metrics(run)) > 3 for run in runs):
            time.sleep(0.2)
        before = sum(len(read_metrics(run)) for run in runs)
        time.sleep(seconds)
        after = sum(len(read_metrics(run)) for run in runs)
        admitted = [json.loads((run / "swarm.json").read_text())["admission"]["admitted"] for run in runs]
        return {"rounds_a_second": round((after - before) / seconds, 2), "admitted": sum(admitted)}
    finally:
        for process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    [what] = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as made:
        print(
            json.dumps(
                {"scan": scan, "join": join, "relay": relay, "folder": through_folder}[what](Path(made)), indent=1
            )
        )
