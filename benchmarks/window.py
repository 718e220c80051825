"""How fast the window is with a large run: 2,000 rounds of 8 nodes with 64 completions each, 1,024,000 in all.

    python benchmarks/window.py [--rounds 2000] [--words 25] [--json] [--folder DIR]

First paint, and when the curves are drawn, in headless chromium, over a server that has just started and has read
nothing: what somebody sees who opens the window. The explorer: a page, filters, and searches for a word that is common,
one that is rare and one that is nowhere, which has every completion looked at; medians and 95th percentiles of what the
server takes for an answer of HTTP. Needs playwright and chromium for the first, and nothing more for the second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.runs.folder import CONFIG, METRICS
from shoal.runs.tables import (
    LEARNED,
    LEARNED_SCHEMA,
    PART_BYTES,
    ROLLOUTS,
    SCHEMA,
    TRANSCRIPT_SCHEMA,
    TRANSCRIPTS,
)

NODES, COMPLETIONS, GROUP, TAKEN = 8, 64, 8, 4
TASKS = ["chain_sum", "gcd", "lcm", "count_bits", "simple_equations"]
NEEDLE = "qqneedleqq"
EVERY = 20
"""Rounds between evaluations."""
SERVER = """
import socket, sys, uvicorn
from pathlib import Path
from shoal_web.watch.sources import Sources
from shoal_web.serving.guard import Access
from shoal_web.watch.server import make_app
app = make_app(Sources(folders=[Path(sys.argv[1])]), Access())
uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
"""


def make_run(folder: Path, rounds: int, words: int) -> None:
    """As a run would have written it: parts of the same size, columns of the same kinds."""
    random = np.random.default_rng(0)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    vocabulary = np.array(["".join(random.choice(letters, random.integers(2, 9))) for _ in range(5000)])
    (folder / ROLLOUTS).mkdir(parents=True)
    (folder / LEARNED).mkdir()
    nodes = [f"node-{node + 1}" for node in range(NODES)]
    block: list[pa.Table] = []
    start, count = 1, NODES * COMPLETIONS
    groups = np.arange(count) // GROUP
    for round in range(1, rounds + 1):
        asked = [" ".join(row) for row in vocabulary[random.integers(0, 5000, (count // GROUP, 20))]]
        said = [" ".join(row) for row in vocabulary[random.integers(0, 5000, (count, words))]]
        if round % (rounds // 10) == 1:
            said[0] += f" {NEEDLE}"
        columns: dict[str, Any] = {
            "round": [round] * count,
            "node": [nodes[at // COMPLETIONS] for at in range(count)],
            "task": [TASKS[group % len(TASKS)] for group in groups],
            "version": ["0.1.25"] * count,
            "config": ['{"max_terms": 3}'] * count,
            "seed": (groups + 1000 * round).tolist(),
            "index": (groups % GROUP).tolist(),
            "prompt": [asked[group] for group in groups],
            "completion": said,
            "finish_reason": random.choice(["stop", "length"], count, p=[0.9, 0.1]).tolist(),
            "reward": random.choice([0.0, 0.5, 1.0], count, p=[0.5, 0.1, 0.4]).tolist(),
            "live": [bool(group % 3) for group in groups],
            "answer": [str(group % 10) for group in groups],
        }
        block.append(pa.table(columns, schema=SCHEMA))
        if sum(table.nbytes for table in block) > PART_BYTES or round == rounds:
            path = folder / ROLLOUTS / f"from-round-{start:06d}.parquet"
            pq.write_table(pa.concat_tables(block), path, compression="zstd")
            block, start = [], round + 1
    _write_learned(folder, rounds, random)
    _write_transcripts(folder, rounds, nodes)
    _write_metrics(folder, rounds, nodes, random)
    (folder / CONFIG).write_text("seed = 0\n")


def _write_learned(folder: Path, rounds: int, random: np.random.Generator) -> None:
    count = rounds * NODES * TAKEN
    learner = np.tile(np.repeat(np.arange(NODES), TAKEN), rounds)
    maker = (learner + random.integers(1, NODES, count)) % NODES
    made = np.maximum(1, np.repeat(np.arange(1, rounds + 1), NODES * TAKEN) - 1)
    group = maker * GROUP + random.integers(0, GROUP, count)
    columns = {
        "round": made + 1,
        "node": [f"node-{node + 1}" for node in learner],
        "maker": [f"node-{node + 1}" for node in maker],
        "made": made,
        "slot": group % GROUP,
        "task": [TASKS[each % len(TASKS)] for each in group],
        "config": ['{"max_terms": 3}'] * count,
        "seed": group + 1000 * made,
        "index": group % GROUP,
        "live": [True] * count,
        "mean_reward": random.random(count),
        "peer": [True] * count,
        "gradient_share": [1 / TAKEN] * count,
        "shortened": [None] * count,
    }
    table = pa.table(columns, schema=LEARNED_SCHEMA)
    pq.write_table(table, folder / LEARNED / "from-round-000001.parquet", compression="zstd")


def _write_transcripts(folder: Path, rounds: int, nodes: list[str]) -> None:
    """Eight questions of each node in each evaluation."""
    places = [(round, node, at) for round in range(0, rounds + 1, EVERY) for node in nodes for at in range(8)]
    columns = {
        "round": [round for round, _, _ in places],
        "node": [node for _, node, _ in places],
        "task": [TASKS[at % len(TASKS)] for _, _, at in places],
        "prompt": [f"question {at} of eight" for _, _, at in places],
        "completion": [f"answer {round * at % 7}" for round, _, at in places],
        "finish_reason": ["stop"] * len(places),
        "reward": [float(round > 200 * at) for round, _, at in places],
        "answer": [str(at) for _, _, at in places],
    }
    table = pa.table(columns, schema=TRANSCRIPT_SCHEMA)
    (folder / TRANSCRIPTS).mkdir()
    pq.write_table(table, folder / TRANSCRIPTS / "from-round-000000.parquet", compression="zstd")


def _write_metrics(folder: Path, rounds: int, nodes: list[str], random: np.random.Generator) -> None:
    names = ["loss", "grad_norm", "entropy", "rollouts/refused", "rollouts/pool", "rollouts/shared", "rollouts/sampled"]
    names += ["reward/peers", "reward/trained_on", "rollouts/live_local", "completions/mean_length"]
    names += ["seconds/generate", "seconds/score", "seconds/learn", "tokens/generated", "tokens/trained"]
    names += [
        "completions/truncated",
        "gradient/peers",
        "learner/steps",
        "clip_ratio/low_mean",
        "clip_ratio/high_mean",
    ]
    with (folder / METRICS).open("w") as file:
        for round in range(rounds + 1):
            for at, node in enumerate(nodes):
                share = 0.1 + 0.7 * (1 - np.exp(-round / (rounds / 4 + 30 * at)))
                row: dict[str, Any] = {"round": round, "node": node, "time": 1.8e9 + round}
                if round % EVERY == 0:
                    row |= {"eval/pass@1": share, "eval/blind": 0.1, "eval/shuffled": share / 4} | {
                        f"eval/pass@1/{task}": share for task in TASKS
                    }
                if round:
                    row |= {"reward/local": share + random.normal(0, 0.05)}
                    row |= dict(zip(names, random.random(len(names)).tolist(), strict=True))
                    row |= {f"gradient/from/{other}": 1 / NODES for other in nodes}
                file.write(json.dumps(row) + "\n")


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A fresh one in a process of its own, which has answered nothing yet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", SERVER, str(folder), str(port)]) as process:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def paint(folder: Path, times: int) -> dict[str, list[float]]:
    """ms from asking for the page to its first paint and to its first drawn curves, with a new server each time."""
    from playwright.sync_api import sync_playwright

    got: dict[str, list[float]] = {"first paint": [], "figures there": [], "story told": [], "curves drawn": []}
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for _ in range(times):
            with server(folder) as address:
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                page.goto(address, wait_until="commit")
                page.wait_for_selector("#figures .figure:nth-child(2)")
                got["figures there"].append(page.evaluate("performance.now()"))
                page.wait_for_selector(".story .course")
                got["story told"].append(page.evaluate("performance.now()"))
                page.wait_for_selector(".chart[data-drawn]")
                got["curves drawn"].append(page.evaluate("performance.now()"))
                entry = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
                got["first paint"].append(page.evaluate(entry))
                page.close()
        browser.close()
    return got


def explore(folder: Path, times: int) -> dict[str, list[float]]:
    """ms of answers."""
    queries: dict[str, dict[str, Any]] = {
        "newest page": {},
        "a page in the middle": {"after": None},
        "filter: node and task": {"node": "node-3", "task": "gcd"},
        "filter: reward, live, rounds": {"least": 1, "live": "true", "first": 100, "last": 120},
        "filter: trained on by node-2": {"learner": "node-2"},
        "filter: that nothing passes": {"least": 2},
        "search: a common word": {"text": "the"},
        "search: a rare word": {"text": NEEDLE.upper()},
        "search: a word that is nowhere": {"text": "zzqqzzqq"},
    }
    got: dict[str, list[float]] = {}
    with server(folder) as address:
        with urllib.request.urlopen(f"{address}/api/runs") as answer:
            base = f"{address}/api/runs/{json.load(answer)['runs'][0]['id']}/"
        parts = sorted(int(path.stem.rpartition("-")[2]) for path in (folder / ROLLOUTS).glob("*.parquet"))
        queries["a page in the middle"] = {"after": f"{parts[len(parts) // 2]}.1000"}
        began = time.perf_counter()
        _ask(base + "rollouts", queries["search: a word that is nowhere"])
        got["search: a word that is nowhere, at once after the start"] = [1000 * (time.perf_counter() - began)]
        for name, query in queries.items():
            took = []
            for _ in range(times):
                began = time.perf_counter()
                _ask(base + "rollouts", query)
                took.append(1000 * (time.perf_counter() - began))
            got[name] = took
        page = _ask(base + "rollouts", {})["rollouts"][0]
        for name, address in (
            ("a rollout", "rollout"),
            ("summary", "summary"),
            ("curves", "curve"),
            ("graph", "graph"),
            ("what a node learned", "story"),
        ):
            given = {"rollout": {"part": page["part"], "row": page["row"]}, "curve": {"metric": "reward/local"}}
            given["story"] = {"node": "node-3"}
            took = []
            for _ in range(times):
                began = time.perf_counter()
                _ask(base + address, given.get(address, {}))
                took.append(1000 * (time.perf_counter() - began))
            got[name] = took
    return got


def _ask(address: str, query: dict[str, Any]) -> Any:
    with urllib.request.urlopen(f"{address}?{urllib.parse.urlencode(query)}") as answer:
        return json.load(answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--words", type=int, default=25, help="of a completion (default 25, some 155 characters)")
    parser.add_argument("--times", type=int, default=20, help="answers for each query (default 20)")
    parser.add_argument("--folder", type=Path, help="keep the run here, or use the one that is here")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary) / "run"
        if not (folder / METRICS).exists():
            make_run(folder, args.rounds, args.words)
        load = os.getloadavg()[0]
        got = explore(folder, args.times)
        if shutil.which("chromium"):
            got |= paint(folder, max(3, args.times // 4))
        loads = [round(load, 1), round(os.getloadavg()[0], 1)]
    shown = {
        name: {"median_ms": round(statistics.median(ms)), "p95_ms": round(float(np.percentile(ms, 95))), "n": len(ms)}
        for name, ms in got.items()
    }
    if args.json:
        print(json.dumps({"cores": os.cpu_count(), "load": loads, "results": shown}, indent=1))
        return
    print(f"{os.cpu_count()} cores, load {loads[0]} before and {loads[1]} after")
    for name, each in shown.items():
        print(f"{name:56} {each['median_ms']:6} ms  p95 {each['p95_ms']:6} ms  n {each['n']}")


if __name__ == "__main__":
    main()
