"""Signed rollouts as nodes of a swarm make them, and archives of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from shoal.config.sections import NetworkConfig
from shoal.config.tasks import TasksConfig
from shoal.identity.keys import Identity
from shoal.rollout import Completion, Rollout
from shoal.tasks import Tasks
from shoal.tasks.task import right_answer
from shoal.transports.base import Channel, Presence, Transport, TransportContext
from shoal.wire.rollouts import seal
from shoal_extras.archive.format import Row, begin, write_part
from shoal_extras.archive.reader import Reader
from shoal_extras.archive.verify import start_of
from shoal_extras.archive.worker import Weigh

SWARM, NOW, TASKS = "lagoon", 1.8e9, TasksConfig(suite="pond", only=["chain_sum", "basic_arithmetic"])
START = start_of(TASKS)


class Line(Transport):
    """A transport by which comes what a test says, as (address, message)."""

    SAID: ClassVar[list[tuple[str, bytes]]] = []

    def __init__(self, network: NetworkConfig, context: TransportContext) -> None:
        super().__init__(network, context)
        for address, data in self.SAID:
            context.deliver("rollouts", address, data)

    def publish(self, channel: Channel, data: bytes) -> None: ...

    def presence(self) -> Presence:
        return Presence()

    def close(self) -> None: ...


@cache
def tasks_of() -> Tasks:
    return Tasks(TASKS)


def envelope(maker: Identity, round: int, slot: int = 0, texts: Sequence[str] = (), **said: Any) -> bytes:
    """A rollout of a question that the maker draws. Half of its answers are right, unless `texts` are given."""
    tasks = tasks_of()
    question = tasks.draw(slot + 1, said.get("swarm", SWARM), maker.id, round)[slot]
    right = right_answer(tasks.lookup(question.id)[0], question.id) or ""
    rng = random.Random(f"{maker.id} {round} {slot}")
    answers = texts or [right if number % 2 else f"it is {rng.randrange(10**6)}" for number in range(4)]
    rollout = Rollout(question.id, question.hash, tuple(map(Completion.of, answers)), maker.name, round, slot)
    return seal(rollout, maker, **{"swarm": SWARM, "now": NOW + 60 * round + slot, "model": "guppy"} | said)


def rows_of(envelopes: Sequence[bytes]) -> list[Row]:
    """Rows with questions and rewards, in the order of an archive."""
    with Reader(START) as reader:
        found = reader.ask(Weigh(list(envelopes))).found
    rows = [Row.made(data, one.question, one.rewards) for data, one in zip(envelopes, found, strict=True)]
    return sorted(rows, key=lambda row: (row.opened().time, row.id))


def write_archive(folder: Path, envelopes: Sequence[bytes]) -> Path:
    begin(folder)
    write_part(folder, rows_of(envelopes))
    return folder
