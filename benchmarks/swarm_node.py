"""A node of a swarm without a model, in a process of its own: real sockets, full admission.

    lives = live_together([Spec(out="a.json", start=time.time() + 5, seconds=20, connect=["127.0.0.1:7447"]), ...])
    python benchmarks/swarm_node.py SPEC.json      # one, alone

A verifier that costs nothing and questions that were made before stand in for the work of a task. What was imported is
kept from Python's garbage collector (`gc.freeze`), which a node of `shoal join` does not do.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil

from shoal.admission.limits import AdmissionLimits
from shoal.config.tasks import TasksConfig
from shoal.rollout import Completion, QuestionId, Rollout, Scored
from shoal.tasks import Tasks

SWARM = "benchmark"
TASKS = Tasks(TasksConfig())


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
    from stand_ins import LocalExaminer

    from shoal.admission.admission import Admission
    from shoal.admission.bounded import FairQueue
    from shoal.admission.intake import RECEIVED
    from shoal.config.settings import Config
    from shoal.membership.connection import SwarmConnection

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
    network = {"name": SWARM, "connect": list(spec.connect), "listen": list(spec.listen)}
    settings = Config.model_validate({"network": network})
    link = SwarmConnection(settings, maker, admission=admission, limits=config, neighbours=spec.neighbours)
    link._intake._received = Noted(*RECEIVED)
    process = psutil.Process()
    result: dict[str, Any] = {"name": maker.name, "shared": {}, "got": got, "rounds": [], "memory": []}
    time.sleep(max(0.0, spec.start - time.time()))
    result["neighbours"] = link.status()["neighbours"]
    time.sleep(Random(spec.key).random() / spec.rate)  # not all at once
    round, end, heard, sampled = 0, spec.start + spec.seconds, counts[0], time.time()
    spent = sum(process.cpu_times()[:2])
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
    result |= {"cpu": (sum(process.cpu_times()[:2]) - spent) / spec.seconds, "uss": process.memory_full_info().uss}
    time.sleep(3)
    result |= {"status": link.status(), "admission": admission.status()["refused"], "count": counts[0]}
    link.close()
    Path(spec.out).write_text(json.dumps(result))


def live_together(specs: Sequence[Spec]) -> list[dict[str, Any]]:
    """The lives of several nodes, each a fork of this process, which has imported everything."""
    import shoal.admission.admission
    import shoal.membership.connection
    import shoal.transports.zenoh.transport  # noqa: F401  (before the forks)

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
            stack.enter_context(program("relay", "--listen", port, "--exempt", "127.0.0.1", *known))
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


def waited(lives: Sequence[dict[str, Any]]) -> list[float]:
    """Seconds from `share` to `receive` of each rollout that came."""
    shared = {(one["name"], int(round)): at for one in lives for round, at in one["shared"].items()}
    return [at - shared[node, round] for one in lives for node, round, at in one["got"]]


def alone(spec: Spec, file: Path, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """A node that is no fork of this process, with these words before its command."""
    file.write_text(json.dumps(dataclasses.asdict(spec)))
    return subprocess.Popen([*before, sys.executable, __file__, str(file)])


if __name__ == "__main__":
    live(Spec(**json.loads(Path(sys.argv[1]).read_text())))
