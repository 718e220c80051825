"""What the tests of a swarm of strangers share: `shoal` as programs of their own, and a reef to attack.

with program("relay", "--listen", where, says="relay on"): ...
with Reef(tmp_path) as reef:                    # a relay, a node as `shoal join` makes it, an honest peer, and Eve
    with reef.withstands("malformed"):          # in the end: refused so, the peer is heard, no faults
        reef.send(b"garbage")
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self

import zenoh
from test_network import free_port, until

from shoal.admission.clocks import Clocks
from shoal.admission.limits import AdmissionLimits
from shoal.admission.peers import Differing
from shoal.config.settings import Config
from shoal.identity.keys import Identity
from shoal.membership.connection import SwarmConnection
from shoal.rollout import Completion, Question, Rollout, Scored
from shoal.runs.swarm_status import STATUS
from shoal.tasks import Tasks
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.offers import OfferedRollouts
from shoal.transports.zenoh.session import TransportOptions, open_session
from shoal.wire.rollouts import seal
from shoal_lab.attacks import right_answer

NOTING = """
import json, os, sys
from shoal.cli.main import main
from shoal.learn.learner import GRPOLearner
update = GRPOLearner.update
def noting(self, scored, seed=0):
    result = update(self, scored, seed)
    own = scored[0].rollout
    others = [[s.rollout.node, s.rollout.round, s.rollout.slot] for s in scored if s.rollout.node != own.node]
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps({"life": os.getpid(), "round": own.round, "others": others}) + "\\n")
    return result
GRPOLearner.update = noting
sys.exit(main(sys.argv[2:]))
"""
"""`shoal WORDS` that notes what each update learned from."""
SWARM = "lagoon"
BLOCK = zenoh.CongestionControl.BLOCK
NAMES = ("chain_sum", "binary_matrix", "spiral_matrix", "string_insertion", "n_queens")
"""Tasks: one that is plain, and those whose scorers in reasoning-gym evaluate what they are given."""


QUICK = (
    *("--rounds", 1_000_000, "--checkpoint-every", 1, "--threads", 1),
    *("--eval-every", 0, "--eval-samples", 1, "--eval-questions", 1),
)
"""Settings of `shoal join` for tests: it goes on until it is stopped."""


def address() -> str:
    return f"127.0.0.1:{free_port()}"


class Program:
    """`shoal WORDS`, running; what it says is gathered."""

    def __init__(self, words: Sequence[object], home: Path | None = None, command: Sequence[str] = ()) -> None:
        environment = os.environ | ({"SHOAL_HOME": str(home)} if home else {})
        self.process = subprocess.Popen(
            [*(command or (sys.executable, "-u", "-m", "shoal")), *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C in a terminal is for the tests
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def wait(self, seconds: float = 60.0) -> int:
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code

    def stop(self, number: int) -> int:
        self.process.send_signal(number)
        return self.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):  # closed while it was read
            self.lines.extend(self.process.stdout)


@contextmanager
def program(*words: object, home: Path | None = None, says: str = "", command: Sequence[str] = ()) -> Iterator[Program]:
    """`shoal WORDS` until the end of the block; begins when it `says` this."""
    running = Program(words, home, command)
    try:
        until(lambda: says in running.said or running.process.poll() is not None)
        assert says in running.said, running.said
        yield running
    finally:
        running.process.kill()
        running.wait()


class Node:
    """`shoal join`, over several lives, with the notes of its updates. Its folder is `folder / "run"`."""

    def __init__(self, folder: Path, *words: object) -> None:
        self.folder, self.words = folder, words
        folder.mkdir()
        self.run = folder / "run"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.start(*self.words, *QUICK, "--out", self.run)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, *words: object) -> None:
        command = (sys.executable, "-u", "-c", NOTING, str(self.folder / "notes"))
        home = self.folder / "home"
        self.program = self._stack.enter_context(program("join", *words, home=home, command=command))

    @property
    def notes(self) -> list[dict[str, Any]]:
        file = self.folder / "notes"
        return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []

    @property
    def status(self) -> dict[str, Any]:
        """What it wrote last; empty before."""
        assert self.program.process.poll() is None, self.program.said
        file = self.run / STATUS
        return json.loads(file.read_text()) if file.exists() else {}

    def learned_from(self) -> list[tuple[str, int, int]]:
        """Others' rollouts, as often as they were learned from; a round that was done again counts as it was last."""
        latest = {note["round"]: note for note in self.notes}
        return [tuple(other) for note in latest.values() for other in note["others"]]


@contextmanager
def relay(where: str, *words: object) -> Iterator[Program]:
    with program("relay", "--listen", where, *words, says="relay on") as running:
        yield running


def config_of(where: str) -> Config:
    settings = {
        "tasks": {"sources": [{"name": name} for name in NAMES]},
        "policy": {"max_completion_length": 256},  # on which the longest message depends
        "round": {"nodes": 1},
        "network": {"name": SWARM, "connect": [where]},
    }
    return Config.model_validate(settings)


TASKS = Tasks(config_of("127.0.0.1:1").tasks)


POND = Tasks(Config().tasks)
"""What `shoal join` trains on by itself."""


def drawn(maker: Identity, round: int = 1, slot: int = 0, tasks: Tasks = TASKS) -> Question:
    return tasks.draw(slot + 1, SWARM, maker.id, round)[slot]


def rollout(maker: Identity, round: int = 1, slot: int = 0, texts: Sequence[str] = (), tasks: Tasks = TASKS) -> Rollout:
    """An honest one; its texts are its own."""
    question = drawn(maker, round, slot, tasks)
    answers = texts or [f"{maker.name} {round} {slot} {number}" for number in range(4)]
    return Rollout(question.id, question.hash, tuple(map(Completion.of, answers)), maker.name, round, slot)


def sealed(maker: Identity, sent: Rollout, swarm: str = SWARM, ahead: float = 0.0) -> bytes:
    return seal(sent, maker, swarm, time.time() + ahead)


def about(maker: Identity, task: str) -> Iterator[tuple[int, int]]:
    """Rounds and slots in which `maker` has a question of `task`."""
    for round, slot in itertools.product(range(1, 60), range(4)):
        if drawn(maker, round, slot).id.task == task:
            yield round, slot


class Deaf:
    """An admission that takes nothing."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.differing = Differing()
        self.clocks = Clocks()

    def admit(self, messages: Sequence[tuple[str, bytes]]) -> list[Scored]:
        return []

    def attribute(self, id: str, data: bytes) -> None:
        return None

    def examine(self, claim: Any, patient: bool) -> tuple[Scored | None, float]:
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        return {}

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


class Honest:
    """A peer that shares what it should, when it is told to."""

    def __init__(self, where: str, tasks: Tasks = TASKS, texts: Sequence[str] = (), knows: bool = False) -> None:
        """`knows`: each question gets a right answer and a wrong one."""
        self.identity = Identity.generate()
        self.round = 0
        self.tasks, self.texts, self.knows = tasks, texts, knows
        self.link = SwarmConnection(config_of(where), self.identity, admission=Deaf())  # type: ignore[arg-type]

    def share(self, slots: int = 4) -> list[Rollout]:
        self.round += 1
        sent = [rollout(self.identity, self.round, slot, self._says(slot), self.tasks) for slot in range(slots)]
        self.link.share(sent)
        return sent

    def close(self) -> None:
        self.link.close()

    def _says(self, slot: int) -> Sequence[str]:
        known = right_answer(self.tasks, drawn(self.identity, self.round, slot, self.tasks)) if self.knows else None
        return self.texts if known is None else (known[0], "no")


class Reef:
    """A relay, a node, an honest peer that the node knows, and a stranger's session."""

    def __init__(self, where: str = "", peer_at: str = "", **limits: Any) -> None:
        """`limits`: of the node's admission.
        `peer_at`: where the honest peer connects, if elsewhere than the node. The relays are then the caller's."""
        self.where, self.peer_at = where or address(), peer_at
        self.limits = limits
        self.got: list[Scored] = []
        self.keys = Keys(SWARM)
        self.eve = Identity.generate()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if not self.peer_at:
            self._stack.enter_context(relay(self.where))
        config = config_of(self.where)
        limits = dataclasses.replace(AdmissionLimits.of(config), **self.limits)
        self.node = self._stack.enter_context(closing(SwarmConnection(config, Identity.generate(), limits=limits)))
        self.honest = self._stack.enter_context(closing(Honest(self.peer_at or self.where)))
        self.session = self._stack.enter_context(open_session(TransportOptions(connect=(self.where,))))
        self._offer()
        return self

    def _offer(self) -> None:
        """Eve says that she has something to give, to whoever asks."""
        offered, key = OfferedRollouts(self.keys, self.eve), self.keys.offers(self.eve.id)
        self.offers = self.session.declare_queryable(key, lambda query: query.reply(key, offered.answer("")[0]))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def refused(self) -> Counter[str]:
        return self.node.admission.refused + self.node.dropped

    def listens(self) -> bool:
        return {self.eve.id, self.honest.identity.id} <= self.node.transport.subscriptions.subscribers.keys()

    def acquaint(self) -> None:
        """Until the node has heard the peer often."""
        until(self.listens)
        for _ in range(5):
            self.hears_the_peer()

    def meet(self, maker: Identity) -> Identity:
        """`maker` is who sends, and the node listens to it."""
        self.offers.undeclare()
        self.eve = maker
        self._offer()
        transport = self.node.transport
        subscriptions = transport.subscriptions
        with subscriptions.lock:
            for id in subscriptions.neighbours.chosen.keys() - {self.honest.identity.id}:
                del subscriptions.neighbours.chosen[id]
            subscriptions.neighbours._take(maker.id, time.monotonic())
        transport._wake.set()
        until(lambda: maker.id in subscriptions.subscribers)
        publisher = self.session.declare_publisher(self.keys.rollouts(maker.id))
        until(lambda: publisher.matching_status.matching)  # the relay has heard of it, too
        publisher.undeclare()
        return maker

    def send(self, *payloads: bytes, under: str = "") -> None:
        """Puts bytes where the node listens: under Eve's key, or any other's."""
        for payload in payloads:
            self.session.put(self.keys.rollouts(under or self.eve.id), payload, congestion_control=BLOCK)

    def received(self) -> list[Scored]:
        self.got += self.node.receive()
        return self.got

    def of(self, maker: Identity) -> list[Scored]:
        """What was received of `maker`."""
        return [scored for scored in self.received() if scored.rollout.node == maker.name]

    def hears_the_peer(self) -> None:
        sent = self.honest.share()
        until(lambda: {one.slot for one in sent} <= self._slots(sent[0].round), 30)

    def _slots(self, round: int) -> set[int]:
        return {scored.rollout.slot for scored in self.of(self.honest.identity) if scored.rollout.round == round}

    @contextmanager
    def withstands(self, *reasons: str) -> Iterator[None]:
        before = self.refused
        yield
        until(lambda: all(self.refused[reason] > before[reason] for reason in reasons), 30)
        self.hears_the_peer()
        assert self.node.status()["faults"] == 0
        assert not self.node.admission.peers.by_key[self.honest.identity.public].offences, "the peer was blamed"


Attack = Callable[[Identity], bytes]
