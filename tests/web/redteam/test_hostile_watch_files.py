"""`shoal watch` over folders that somebody made to stop it or to take its memory, as processes."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strangers import program
from test_network import free_port
from watched import completion, metric, small_run, write_run

pytest.importorskip("starlette")
pytest.importorskip("duckdb")

from shoal.runs.tables import SCHEMA

MORE = 1100
"""MB that the page and its readers may take beyond what they have with an honest run."""
PART = "rollouts.parquet/from-round-000001.parquet"


def texts(run: Path, text: pa.Array, groups: int = 1, **options: Any) -> Path:
    """A part in which each row has `text` for a completion, `groups` times."""
    rows = len(text)
    plain = {field.name: pa.nulls(rows, field.type) for field in SCHEMA}
    plain |= {"round": pa.array([1] * rows), "node": pa.array(["eve"] * rows), "completion": text}
    (run / PART).parent.mkdir(exist_ok=True)
    table = pa.table(plain)
    with pq.ParquetWriter(run / PART, table.schema, compression="zstd", store_schema=False, **options) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return run / PART


def dictionary_bomb(run: Path) -> None:
    """A million rows, all of them one text of a megabyte: 1 TB, by a file that says that it has 3 MB."""
    indices = pa.array([0], pa.int32()).take(pa.array([0] * 1_000_000))
    text = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * (1 << 20)]))
    texts(run, text, dictionary_pagesize_limit=1 << 30)


def plain_bomb(run: Path) -> Path:
    """Some KB that become 1.5 GB."""
    return texts(run, pa.array(["x" * (1 << 20)] * 64), 24, use_dictionary=False, write_statistics=False)


def lying_bomb(run: Path) -> None:
    """The same, and its footer says that it becomes some KB: sizes are written in as many bytes, but small."""
    path = plain_bomb(run)
    data, metadata = bytearray(path.read_bytes()), pq.read_metadata(path)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = bytes(data[start:])
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for size in {row_group.column(at).total_uncompressed_size for at in range(row_group.num_columns)}:
            if size > 1 << 20:
                footer = footer.replace(varint(2 * size), padded(2, len(varint(2 * size))))
    path.write_bytes(bytes(data[:start]) + footer)
    assert pq.read_metadata(path).row_group(0).column(8).total_uncompressed_size == 1


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def padded(number: int, length: int) -> bytes:
    return bytes([number | 128, *[128] * (length - 2), 0])


def sparse(run: Path) -> None:
    """Files of a terabyte that take no room."""
    for name in ("metrics.jsonl", "config.toml", "swarm.json"):
        (run / name).unlink(missing_ok=True)
        with (run / name).open("wb") as file:
            file.truncate(1 << 40)


def many_figures(run: Path) -> None:
    """Short lines, each of which has a place for each of 500 figures: 3 GB, if all of them were kept."""
    (run / "metrics.jsonl").unlink()
    named = json.dumps(metric(1, "eve") | {f"figure-{at}": 1.0 for at in range(500)})
    (run / "metrics.jsonl").write_text(named + "\n" + '{"round": 2, "node": "eve"}\n' * 800_000)


def pipes(run: Path) -> None:
    for name in ("metrics.jsonl", "config.toml", "swarm.json", PART):
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)


ATTACKS: dict[str, Callable[[Path], Any]] = {
    "pipes": pipes,
    "dictionary": dictionary_bomb,
    "plain": plain_bomb,
    "lying": lying_bomb,
    "sparse": sparse,
    "figures": many_figures,
}
ASKED = (
    "summary",
    "curve?metric=reward/local",
    "curve?metric=eval/pass@1&by=task",
    "graph",
    "rollouts",
    "rollouts?text=zzz",
    "rollout?part=1&row=0",
)


class WatchedPage:
    """A running `shoal watch` and all processes it has started."""

    def __init__(self, port: int, process: psutil.Process) -> None:
        self._base, self._process = f"http://127.0.0.1:{port}/api/runs", process
        self.peak = 0.0
        self._closed = threading.Event()
        threading.Thread(target=self._weigh, daemon=True).start()

    def get(self, path: str = "") -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(self._base + path, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def runs(self) -> dict[str, str]:
        return {run["title"]: run["id"] for run in self.get()[1]["runs"]}

    def close(self) -> None:
        self._closed.set()

    def _weigh(self) -> None:
        while not self._closed.wait(0.05):
            try:
                there = [self._process, *self._process.children(recursive=True)]
                self.peak = max(self.peak, sum(each.memory_info().rss for each in there) / 2**20)
            except psutil.NoSuchProcess:
                continue


@contextmanager
def watching(folder: Path) -> Iterator[WatchedPage]:
    port = free_port()
    words = ("watch", "--serve", "--no-open", "--listen", f"127.0.0.1:{port}", folder)
    with program(*words, says="watching", command=(sys.executable, "-u", "-m", "shoal")) as running:
        page = WatchedPage(port, psutil.Process(running.process.pid))
        try:
            yield page
        finally:
            page.close()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("attack", ATTACKS)
def test_one_run_stops_no_other_and_takes_bounded_memory(tmp_path: Path, attack: str) -> None:
    small_run(tmp_path / "runs" / "honest")
    eve = write_run(tmp_path / "runs" / "eve", [metric(1, "eve")], {1: [completion("eve", "mine")]})
    with watching(tmp_path / "runs") as page:
        ids = page.runs()
        for what in ASKED:
            assert page.get(f"/{ids['honest']}/{what}")[0] in (200, 404)
        before = page.peak
        ATTACKS[attack](eve)
        page.get()  # as an open page does
        asking = [threading.Thread(target=page.get, args=(f"/{ids['eve']}/{what}",)) for what in ASKED]
        for each in asking:
            each.start()
        began = time.monotonic()
        status, summary = page.get(f"/{ids['honest']}/summary")
        assert (status, len(summary["nodes"]), summary["trouble"]) == (200, 2, "")
        assert page.get(f"/{ids['honest']}/rollouts?text=says")[1]["rollouts"]
        took = time.monotonic() - began
        for each in asking:
            each.join(120)
            assert not each.is_alive()
        status, said = page.get(f"/{ids['eve']}/summary")
        assert status == 200, said
        print(f"{attack}: {page.peak - before:.0f} MB more, others waited {took:.1f} s; {said['trouble'][:120]!r}")
        assert said["trouble"] or attack in ("dictionary", "lying", "figures")  # which are read, or being read
        assert page.peak - before < MORE
        with (tmp_path / "runs" / "honest" / "metrics.jsonl").open("a") as file:  # the page still shows what is new
            file.write(json.dumps(metric(50, "ada")) + "\n")
        end = time.monotonic() + 30
        while page.get() and page.get(f"/{ids['honest']}/summary")[1]["rounds"] != 50:
            assert time.monotonic() < end
            time.sleep(0.2)
