"""What the networked swarm costs and bears: processes of their own, real sockets, full admission, no models.

    python benchmarks/network.py latency      # 8 nodes, 20 rollouts of 10 KB a second each: by a relay, and as peers
    python benchmarks/network.py crowd        # 64 nodes on 3 relays: is everybody heard, does everybody hear enough
    python benchmarks/network.py bytes        # what a node hears among 8 and among 64; simulated up to 10,000
    python benchmarks/network.py netem        # (root) 100 ms, 5 % of packets lost, and a partition of 30 s
    python benchmarks/network.py memory       # what the swarm adds to a process
    python benchmarks/network.py soak --soak 600
    ... [--json]                              # one object of name to ratio, measured over what is at most asked

Latency is from `share()` until `receive()` would give the rollout, by one clock. A verifier that costs nothing and
questions that were made before stand in for the work of a task. Rates of strangers are lifted where the benchmark says
so. What was imported is kept from Python's garbage collector (`gc.freeze`), which a node of `shoal join` does not do.
Figures of a busy machine are noisy: the load is printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil
from wires import Wires, inside

from shoal.config.tasks import TasksConfig
from shoal.rollout import Completion, QuestionId, Rollout, Scored
from shoal.swarm.admission_limits import AdmissionLimits
from shoal.tasks import Tasks

SWARM = "benchmark"
TASKS = Tasks(TasksConfig())
ASKED: dict[str, tuple[str, float]] = {
    "latency p50, relay (ms)": ("at most", 3),
    "latency p99, relay (ms)": ("at most", 20),
    "lost, relay": ("at most", 0),
    "latency p50, peers (ms)": ("at most", 3),
    "latency p99, peers (ms)": ("at most", 20),
    "lost, peers": ("at most", 0),
    "nodes of 64 that nobody heard": ("at most", 0),
    "nodes of 64 that heard fewer than wanted": ("at most", 0),
    "bytes in, 64 nodes / 8": ("at most", 1.2),
    "bytes in, simulated, 10000 nodes / 64": ("at most", 1.2),
    "longest pause / usual spread": ("at most", 1),
    "sharing resumed after healing (s)": ("at most", 10),
    "memory of the swarm (MB)": ("at most", 60),
    "memory, last quarter / second": ("at most", 1.05),
}


@dataclasses.dataclass
class Spec:
    """What a node is to do. Times are seconds since 1970."""

    out: str
    start: float
    seconds: float
    connect: list[str] = dataclasses.field(default_factory=list)
    listen: list[str] = dataclasses.field(default_factory=list)
    key: str = ""
    """Private, in hex."""
    rate: float = 20.0
    """Rollouts a second."""
    neighbours: int = 8
    train: float = 0.0
    """Seconds of a round's training, in place of a rate."""
    words: int = 130
    """In a completion, times three; 130 make a message of 10 KB."""
    sample: float = 0.0
    """Seconds between two looks at its memory. What it received is then not kept."""
    early: float = 60.0
    """Seconds before the start at which it enters the swarm, at the earliest."""

    def __post_init__(self) -> None:
        self.key = self.key or os.urandom(32).hex()


class Unread:
    """A verifier that costs nothing."""

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        return [[float(number % 2) for number, _ in enumerate(texts)] for _, texts in items]


def identity_of(spec: Spec) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from shoal.identity.keys import Identity

    return Identity(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(spec.key)))


def rollout_of(maker: Any, round: int, words: int) -> Rollout:
    question = TASKS.draw(1, SWARM, maker.id, round)[0]
    texts = [Completion.of(f"{maker.name} {round} {n} " + "so it is " * words) for n in range(8)]
    return Rollout(question.id, question.hash, tuple(texts), maker.name, round, 0)


def live(spec: Spec) -> None:
    """A node's life; what came of it goes into `spec.out`."""
    from shoal.sandbox.examiner import LocalExaminer
    from shoal.swarm.admission import Admission
    from shoal.swarm.intake import RECEIVED
    from shoal.swarm.neighbours import Neighbours
    from shoal.swarm.network import NetworkLink
    from shoal.swarm.queues import FairQueue
    from shoal.swarm.transport import TransportOptions
    from shoal.swarm.wire import seal

    class Noted(FairQueue[Scored]):
        """Notes when what came could be received."""

        def put(self, id: str, item: Scored, size: int) -> None:
            super().put(id, item, size)
            counts[0] += 1
            if not spec.sample:
                got.append((item.rollout.node, item.rollout.round, time.time()))

    time.sleep(max(0.0, spec.start - spec.early - time.time()))
    got: list[tuple[str, int, float]] = []
    counts = [0]
    maker = identity_of(spec)
    config = AdmissionLimits(max_characters=4096)
    admission = Admission(SWARM, LocalExaminer(TASKS, Unread()), config, num_generations=8)
    options = TransportOptions(connect=tuple(spec.connect), listen=tuple(spec.listen), lan=False)
    whom = Neighbours(maker.id, Random(), start=spec.neighbours)
    link = NetworkLink(options, SWARM, maker, lambda r: seal(r, maker, SWARM, time.time()), admission, neighbours=whom)
    link._intake._received = Noted(*RECEIVED)
    process = psutil.Process()
    result: dict[str, Any] = {"name": maker.name, "shared": {}, "got": got, "rounds": [], "memory": []}
    time.sleep(max(0.0, spec.start - time.time()))
    result["neighbours"] = [one["name"] for one in link.status()["neighbours"]]
    time.sleep(Random(spec.key).random() / spec.rate)  # not all at once
    round, end, heard, sampled = 0, spec.start + spec.seconds, counts[0], time.time()
    made = rollout_of(maker, 1, spec.words)
    due = time.time()
    while time.time() < end:
        round += 1
        began = time.time()
        if spec.train:
            time.sleep(spec.train)
        result["shared"][round] = time.time()
        link.share([made])
        if spec.train or round % max(1, int(spec.rate)) == 0:
            link.receive()
            if round > 5 * spec.rate:  # a pool that is still empty would ask for more neighbours
                link.need(min(counts[0] - heard, 16), 4)  # with more it would give neighbours up
            heard = counts[0]
        if spec.train:
            result["rounds"].append((began, time.time() - began))
        if spec.sample:
            result["shared"] = {}
            if time.time() - sampled > spec.sample:
                sampled = time.time()
                result["memory"].append((sampled, process.memory_info().rss))
        made = rollout_of(maker, round + 1, spec.words)
        if not spec.train:
            due += 1 / spec.rate
            time.sleep(max(0.0, due - time.time()))
    time.sleep(3)
    result |= {"status": link.status(), "admission": admission.status()["refused"], "count": counts[0]}
    link.close()
    Path(spec.out).write_text(json.dumps(result))


def live_together(specs: Sequence[Spec]) -> list[dict[str, Any]]:
    """The lives of several nodes, each a fork of this process, which has imported everything."""
    import shoal.swarm.admission
    import shoal.swarm.network  # noqa: F401  (before the forks)

    gc.collect()
    gc.freeze()  # a full collection, over all that sympy makes, stops a process for 50 to 100 ms
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=live, args=(spec,)) for spec in specs]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [json.loads(Path(spec.out).read_text()) for spec in specs if Path(spec.out).exists()]


@contextmanager
def relays(number: int, first_port: int = 18_447) -> Iterator[list[str]]:
    """Relays that know each other, and where they listen."""
    with ExitStack() as stack:
        ports = [f"127.0.0.1:{first_port + n}" for n in range(number)]
        for n, port in enumerate(ports):
            known = [word for other in ports[:n] for word in ("--connect", other)]
            stack.enter_context(program("relay", "--listen", port, *known))
        time.sleep(2)
        yield ports


@contextmanager
def program(*words: str, before: Sequence[str] = ()) -> Iterator[int]:
    """`shoal WORDS`, until the end of the block: its process id."""
    process = subprocess.Popen([*before, sys.executable, "-m", "shoal", *words], stdout=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def latency(folder: Path, _: argparse.Namespace) -> dict[str, float]:
    figures: dict[str, float] = {}
    for how in ("relay", "peers"):
        with relays(1) as (where,):
            start = time.time() + 8
            specs = [Spec(str(folder / f"{how}{n}"), start, 20, [where]) for n in range(8)]
            if how == "peers":
                hub = "127.0.0.1:18500"
                for n, spec in enumerate(specs):
                    spec.connect, spec.listen = ([hub], ["127.0.0.1:0"]) if n else ([], [hub])
            for spec in specs:  # in the cache of all before they are forked
                maker = identity_of(spec)
                for round in range(1, 420):
                    TASKS.draw(1, SWARM, maker.id, round)
            lives = live_together(specs)
        waits = sorted(waited(lives))
        expected = sum(len(one["shared"]) for one in lives) * 7
        figures |= {
            f"latency p50, {how} (ms)": 1e3 * waits[len(waits) // 2],
            f"latency p99, {how} (ms)": 1e3 * waits[int(len(waits) * 0.99)],
            f"latency max, {how} (ms)": 1e3 * waits[-1],
            f"rollouts received, {how}": len(waits),
            f"lost, {how}": expected - len(waits),
            f"neighbours at the start, least, {how}": min(len(one["neighbours"]) for one in lives),
        }
    return figures


def waited(lives: Sequence[dict[str, Any]]) -> list[float]:
    """Seconds from `share` to `receive` of each rollout that came."""
    shared = {(one["name"], int(round)): at for one in lives for round, at in one["shared"].items()}
    return [at - shared[node, round] for one in lives for node, round, at in one["got"]]


def swim(folder: Path, number: int) -> tuple[list[dict[str, Any]], float]:
    """`number` nodes at 1 rollout a second on three relays; and the bytes that a node's socket received a second."""
    with relays(3, 18_800) as where:
        start = time.time() + 8 + number / 3
        specs = [
            Spec(str(folder / f"{number}-{n}"), start, 40, [*where[n % 3 :], *where[: n % 3]], rate=1.0)
            for n in range(number)
        ]
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        watcher = context.Process(target=watch_sockets, args=(where, start + 5, 30, queue))
        watcher.start()
        lives = live_together(specs)
        rate: float = queue.get()
        watcher.join()
        return lives, rate / number


def watch_sockets(where: Sequence[str], start: float, seconds: float, queue: Any) -> None:
    """Bytes a second that all sockets of nodes received from relays, by the kernel's count."""

    def total() -> int:
        ports = " or ".join(f"dport = :{one.rpartition(':')[2]}" for one in where)
        told = subprocess.run(["ss", "-tinpH", "state", "established", f"( {ports} )"], capture_output=True, text=True)
        sockets = re.findall(r"pid=(\d+).*\n.*bytes_received:(\d+)", told.stdout)
        return sum(int(count) for pid, count in sockets if int(pid) not in others)

    siblings = psutil.Process(os.getppid()).children()
    others = {one.pid for one in siblings if "relay" in one.cmdline()}  # they also connect to each other
    time.sleep(max(0.0, start - time.time()))
    before = total()
    time.sleep(seconds)
    queue.put((total() - before) / seconds)


def crowd(folder: Path, _: argparse.Namespace) -> dict[str, float]:
    lives, _rate = swim(folder, 64)
    names = {one["name"] for one in lives}
    heard = {node for one in lives for node, *_ in one["got"]}
    fewer = [one for one in lives if len({node for node, *_ in one["got"]}) < min(8, one["status"]["wanted"])]
    waits = sorted(waited(lives))
    return {
        "nodes that lived": len(lives),
        "nodes of 64 that nobody heard": len(names - heard),
        "nodes of 64 that heard fewer than wanted": len(fewer),
        "nodes heard by each, mean": statistics.fmean(len({node for node, *_ in one["got"]}) for one in lives),
        "latency p50 of 64 (ms)": 1e3 * waits[len(waits) // 2],
        "latency p99 of 64 (ms)": 1e3 * waits[int(len(waits) * 0.99)],
        "faults": sum(one["status"]["faults"] for one in lives),
    }


def bytes_(folder: Path, _: argparse.Namespace) -> dict[str, float]:
    rates = {number: swim(folder, number)[1] for number in (8, 64)}
    figures = {f"bytes in, {number} nodes (KB/s)": rate / 1e3 for number, rate in rates.items()}
    figures["bytes in, 64 nodes / 8"] = rates[64] / rates[8]
    simulated = {number: simulate(number) for number in (8, 64, 512, 4096, 10_000)}
    for number, rate in simulated.items():
        figures[f"bytes in, simulated, {number} nodes (KB/s)"] = rate / 1e3
    figures["bytes in, simulated, 10000 nodes / 64"] = simulated[10_000] / simulated[64]
    return figures


TOKEN, MESSAGE, STAY, HOUR = 180, 10_600, 1800.0, 3600.0
"""Bytes of a presence on the wire, and of a rollout; seconds that a node of the simulation stays."""


def simulate(number: int) -> float:
    """Bytes in a second for the mean node of `number`: the real choice of regions and neighbours, on a network that is
    a set. Each node makes a rollout a second, and goes after half an hour, when another comes."""
    from shoal.swarm.key_expressions import shard_of
    from shoal.swarm.neighbours import ENOUGH, Neighbours, find_region, random_branch

    random = Random(number)
    ids = [random.randbytes(32).hex() for _ in range(number)]
    by_prefix: dict[str, set[str]] = {}
    for id in ids:
        for digits in range(4):
            by_prefix.setdefault(shard_of(id)[:digits], set()).add(id)
    totals = []
    for id in random.sample(ids, min(number, 500)):
        node, told = Neighbours(id, random), 0

        def ask(prefix: str, id: str = id) -> set[str]:
            nonlocal told
            found = by_prefix.get(prefix, set()) - {id}
            told += len(found)
            return found

        prefix, peers = find_region(ask, random_branch(random), ENOUGH * node.wanted)
        node.found(prefix, peers, (), 0.0)
        told += len(peers)  # the subscription's history
        chosen = node.choose(0.0)
        comings_and_goings = 2 * len(peers) / STAY
        totals.append(told * TOKEN / STAY + comings_and_goings * TOKEN + len(chosen) * MESSAGE)
    return statistics.fmean(totals)


CUT, BEFORE, AFTER = 30.0, 20.0, 30.0
DELAY, LOSS = 0.1, 0.05


def netem(folder: Path, _: argparse.Namespace) -> dict[str, float]:
    """Two relays and six nodes, each on a host of its own. One relay and two nodes are cut off together, with a relay;
    one more node is cut off alone. The scripted training takes 200 ms a round, which shares one rollout of 1 KB: what
    comes by links of this kind is some 40 KB a second."""
    hosts = ["relay-a", "relay-b", *(f"node-{n}" for n in range(6))]
    away = ("relay-b", "node-3", "node-4")
    alone = "node-5"
    address = {host: f"10.77.7.{n + 10}" for n, host in enumerate(hosts)}
    with ExitStack() as stack:
        wires = stack.enter_context(Wires(address, DELAY, LOSS))
        a, b = (f"tcp/{address[host]}:7447" for host in ("relay-a", "relay-b"))
        stack.enter_context(program("relay", "--listen", a, before=inside("relay-a")))
        stack.enter_context(program("relay", "--listen", b, "--connect", a, before=inside("relay-b")))
        start = time.time() + 25
        processes = []
        for n in range(6):
            order = [b, a] if f"node-{n}" in away else [a, b]
            spec = Spec(str(folder / f"node-{n}"), start, BEFORE + CUT + AFTER, order, train=0.2, words=10)
            file = folder / f"spec-{n}"
            file.write_text(json.dumps(dataclasses.asdict(spec)))
            words = [*inside(f"node-{n}"), sys.executable, __file__, "node", "--spec", str(file)]
            processes.append(subprocess.Popen(words))
        time.sleep(max(0.0, start + BEFORE - time.time()))
        cut = time.time()
        sides = {host: "b" if host in away else "alone" if host == alone else "a" for host in hosts}
        wires.cut(sides)
        time.sleep(CUT)
        healed = time.time()
        wires.cut({})
        for process in processes:
            process.wait()
    lives = {f"node-{n}": json.loads((folder / f"node-{n}").read_text()) for n in range(6)}
    return partition_figures(lives, sides, cut, healed)


def partition_figures(
    lives: dict[str, dict[str, Any]], sides: dict[str, str], cut: float, healed: float
) -> dict[str, float]:
    names = {one["name"]: host for host, one in lives.items()}
    resumed, every, within = [], [], 0
    for host, one in lives.items():
        came: dict[str, float] = {}
        for name, _, at in one["got"]:
            other = names[name]
            if sides[other] != sides[host] and at > healed:
                came.setdefault(other, at - healed)
            if sides[other] == sides[host] and cut + 12 < at < healed:
                within += 1
        missing = sum(sides[other] != sides[host] for other in lives) - len(came)
        resumed.append(min(came.values(), default=float("inf")))
        every += [*came.values(), *[float("inf")] * missing]
    before = [took for one in lives.values() for at, took in one["rounds"] if at < cut - 1]
    after = [took for one in lives.values() for at, took in one["rounds"] if at >= cut - 1]
    usual = statistics.median(before)
    return {
        "rounds before the cut": len(before),
        "rounds since": len(after),
        "round, median before (ms)": 1e3 * usual,
        "round, longest before (ms)": 1e3 * max(before),
        "round, median since (ms)": 1e3 * statistics.median(after),
        "round, longest since (ms)": 1e3 * max(after),
        "longest pause / usual spread": (max(after) - usual) / max(max(before) - usual, 0.01),
        "rollouts within sides while cut": within,
        "sharing resumed after healing (s)": max(resumed),
        "every pair shares again after (s)": max(every),
        "faults": sum(one["status"]["faults"] for one in lives.values()),
    }


def bare() -> float:
    """Bytes of this process with what is no part of the swarm."""
    for round in range(4096):
        TASKS.draw(1, "cache", round)
    gc.collect()
    return psutil.Process().memory_info().rss


def memory(folder: Path, _: argparse.Namespace) -> dict[str, float]:
    """A process with link, admission and tasks that hears 7 nodes of 20 rollouts a second, less one of tasks alone."""
    with relays(1) as (where,):
        file, start = folder / "spec", time.time() + 12
        watched = Spec(str(folder / "watched"), start, 40, [where], sample=1.0)
        file.write_text(json.dumps(dataclasses.asdict(watched)))
        process = subprocess.Popen([sys.executable, __file__, "node", "--spec", str(file)])
        alone = subprocess.run([sys.executable, __file__, "bare"], capture_output=True, text=True, check=True)
        live_together([Spec(str(folder / f"m{n}"), start, 40, [where], sample=1.0) for n in range(7)])
        process.wait()
    result = json.loads(Path(watched.out).read_text())
    sizes = [size for _, size in result["memory"]]
    from shoal.sandbox.verifier import Verifier

    with Verifier(TasksConfig()) as verifier:
        question = TASKS.draw(1, "memory")[0]
        verifier.score([(question.id, ["1"])])
        worker = sum(child.memory_info().rss for child in psutil.Process().children(recursive=True))
    return {
        "process without a swarm (MB)": float(alone.stdout) / 1e6,
        "process with it, largest (MB)": max(sizes) / 1e6,
        "rollouts it admitted": result["count"],
        "memory of the swarm (MB)": (max(sizes) - float(alone.stdout)) / 1e6,
        "a verifier's process, besides (MB)": worker / 1e6,
    }


def soak(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Four nodes at 20 rollouts a second through a relay, while others come with new keys, and go after ten seconds."""
    with ExitStack() as stack:
        where = "127.0.0.1:18700"
        relay = psutil.Process(stack.enter_context(program("relay", "--listen", where)))
        start = time.time() + 5
        specs = [Spec(str(folder / f"s{n}"), start, args.soak, [where], sample=2.0) for n in range(4)]
        visits = [
            Spec(str(folder / f"v{n}"), start + 12 * n, 10, [where], sample=2.0, early=2.0)
            for n in range(int(args.soak / 12))
        ]
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        watcher = context.Process(target=watch_memory, args=(relay.pid, start, args.soak, queue))
        watcher.start()
        lives = live_together([*specs, *visits])[:4]
        of_relay: list[tuple[float, int]] = queue.get()
        watcher.join()
    growths = [growth(one["memory"], start, args.soak) for one in lives]
    return {
        "seconds": args.soak,
        "rollouts admitted by a node, mean": statistics.fmean(one["count"] for one in lives),
        "visitors": len(visits),
        "a node's memory, first sample (MB)": lives[0]["memory"][0][1] / 1e6,
        "a node's memory, last sample (MB)": lives[0]["memory"][-1][1] / 1e6,
        "memory, last quarter / second": max(growths),
        "relay's memory, first sample (MB)": of_relay[0][1] / 1e6,
        "relay's memory, last sample (MB)": of_relay[-1][1] / 1e6,
        "relay's memory, last quarter / second": growth(of_relay, start, args.soak),
        "faults": sum(one["status"]["faults"] for one in lives),
    }


def watch_memory(pid: int, start: float, seconds: float, queue: Any) -> None:
    process, samples = psutil.Process(pid), []
    while time.time() < start + seconds:
        if time.time() >= start:
            samples.append((time.time(), process.memory_info().rss))
        time.sleep(2)
    queue.put(samples)


def growth(samples: Sequence[tuple[float, int]], start: float, seconds: float) -> float:
    """The mean of the last quarter over that of the second, by when caches and neighbours are there."""

    def mean(first: float, last: float) -> float:
        return statistics.fmean(size for at, size in samples if start + first * seconds <= at <= start + last * seconds)

    return mean(0.75, 1.0) / mean(0.25, 0.5)


WORKS = {"latency": latency, "crowd": crowd, "bytes": bytes_, "netem": netem, "memory": memory, "soak": soak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=[*WORKS, "node", "bare"], metavar="{" + ",".join(WORKS) + "}")
    parser.add_argument("--soak", type=float, default=600, metavar="SECONDS")
    parser.add_argument("--spec", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.work == "node":
        return live(Spec(**json.loads(args.spec.read_text())))
    if args.work == "bare":
        return print(bare())
    with tempfile.TemporaryDirectory() as scratch:
        figures = WORKS[args.work](Path(scratch), args)
    if args.json:
        ratios = {name: figures[name] / (ASKED[name][1] or 1) for name in figures if name in ASKED}
        return print(json.dumps(ratios))
    load = os.getloadavg()[0]
    print(f"{args.work}: {psutil.cpu_count()} cores, load {load:.1f} at the end")
    for name, value in figures.items():
        asked = f"   {ASKED[name][0]} {ASKED[name][1]:g}" if name in ASKED else ""
        print(f"{name:48} {value:12,.2f}{asked}")


if __name__ == "__main__":
    main()
