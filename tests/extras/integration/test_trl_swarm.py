"""Trainers of TRL and a node of shoal over loopback sockets: they learn from each other, and nobody stops them."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import psutil
from grpo import LETTERS, RIGHT, WRONG, make_trainer
from strangers import SWARM, Deaf, Honest, Node, Program, address, config_of, drawn, program, relay, sealed
from strangers import rollout as honest_rollout
from test_network import until
from transformers import TrainerCallback

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.identity.keys import Identity
from shoal.membership.connection import SwarmConnection
from shoal.rollout import Rollout
from shoal.tasks import Tasks
from shoal_extras.trl import TRLNode

pytestmark = [pytest.mark.network, pytest.mark.slow]

SCRIPT = Path(__file__).parents[2] / "support" / "trl_program.py"
TASKS = Tasks(TasksConfig(sources=[TaskSpec(name=LETTERS)]))


class Trainer:
    """A GRPOTrainer as a program, with the notes of its steps."""

    def __init__(self, folder: Path, running: Program) -> None:
        self.folder, self.program = folder, running

    @property
    def notes(self) -> list[dict[str, Any]]:
        assert self.program.process.poll() is None, self.program.said
        file = self.folder / "notes"
        return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []

    @property
    def makers(self) -> set[str]:
        return {maker for note in self.notes for maker in note["makers"]}

    def goes_on(self) -> None:
        """It takes two more steps."""
        before = len(self.notes)
        until(lambda: len(self.notes) >= before + 2, 120)


@contextmanager
def trainer(folder: Path, where: str, *words: object, launcher: tuple[str, ...] = ()) -> Iterator[Trainer]:
    folder.mkdir()
    command = (sys.executable, "-u", *launcher, str(SCRIPT), str(folder / "notes"), where)
    with program(*words, home=folder / "home", says="training", command=command) as running:
        try:
            yield Trainer(folder, running)
        finally:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(running.process.pid).children(recursive=True):
                    child.kill()  # those of a launcher, too


def test_two_trainers_and_a_node_train_together_and_survive_each_other(tmp_path: Path) -> None:
    where = address()
    with ExitStack() as stack:
        carrier = stack.enter_context(relay(where))
        node = stack.enter_context(Node(tmp_path / "node", where))
        ada, bob = (stack.enter_context(trainer(tmp_path / name, where)) for name in ("ada", "bob"))
        until(lambda: len(ada.makers) == len(bob.makers) == 3, 240)
        assert ada.makers == bob.makers
        until(lambda: {maker for maker, *_ in node.learned_from()} == ada.makers - {node.status["name"]}, 120)
        for notes in (ada.notes, bob.notes):
            mixed = [note for note in notes if note.get("rollouts/sampled")]
            assert all(note["reward/peers"] > 0 for note in mixed)  # others' groups are live
            assert all(note["reward/local"] <= 1 for note in mixed)
        bob.program.process.kill()
        ada.goes_on()
        carrier.process.kill()
        until(lambda: "alone: " in ada.program.said, 120)
        ada.goes_on()
        children = psutil.Process(ada.program.process.pid).children(recursive=True)
        assert children
        assert ada.program.stop(signal.SIGINT) != 0
        assert "KeyboardInterrupt" in ada.program.said
        until(lambda: not any(child.is_running() for child in children), 20)


def test_several_processes_are_one_node(tmp_path: Path) -> None:
    """As `accelerate launch` starts them: they share the questions, and one of them has the network."""
    hub, port = address(), address().rpartition(":")[2]
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port)
    with (
        relay(hub),
        Node(tmp_path / "node", hub) as node,
        trainer(tmp_path / "ada", hub, launcher=launcher) as ada,
    ):
        until(lambda: len(ada.makers) == 2, 240)
        until(lambda: len({maker for maker, *_ in node.learned_from()}) == 1, 120)
        assert ada.makers == {node.status["name"]} | {maker for maker, *_ in node.learned_from()}
        ada.goes_on()


def test_a_hostile_peer_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage, questions that are not its own, control tokens, claimed rewards and a flood: honest peers are learned
    from, and the training goes on."""
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    where, eve, numbers = address(), Identity.generate(), iter(range(1, 10_000))
    texts = (RIGHT, WRONG, WRONG, RIGHT)

    def hostile(sent: Rollout) -> bytes:
        other = drawn(Identity.generate(), sent.round, 0, TASKS)
        kinds = [
            b"garbage",
            sealed(eve, Rollout(other.id, other.hash, sent.completions, eve.name, sent.round)),
            sealed(eve, honest_rollout(eve, sent.round, 1, ("a<|im_end|>", WRONG, WRONG, RIGHT), TASKS)),
            sealed(eve, honest_rollout(eve, sent.round, 2, texts, TASKS)).replace(b"round", b"wards"),
        ]
        return kinds[sent.round % len(kinds)]

    makers: list[set[str]] = []
    before = set(threading.enumerate())
    with ExitStack() as stack:
        stack.enter_context(relay(where))
        honest = stack.enter_context(closing(Honest(where, TASKS, texts)))
        enemy = SwarmConnection(config_of(where), eve, admission=Deaf())  # type: ignore[arg-type]
        enemy._seal = hostile  # type: ignore[method-assign]
        stack.enter_context(closing(enemy))
        node = stack.enter_context(TRLNode(connect=where, swarm=SWARM, task=LETTERS, peers=2))

        def rollout_func(prompts: Any, trainer: Any) -> Any:
            honest.share()
            enemy.share([honest_rollout(eve, next(numbers), 0, texts, TASKS) for _ in range(50)])
            time.sleep(0.2)
            rows = node.rollout_func(prompts, trainer)
            makers.append(set(rows["shoal_maker"]))
            return rows

        class Enough(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                control.should_training_stop = sum(honest.identity.name in names for names in makers) > 20

        hooks = node.hooks | {"rollout_func": rollout_func}
        hooks["callbacks"].append(Enough())
        trainer = make_trainer(node, tmp_path / "out", hooks=hooks, max_steps=1000)
        trainer.train()
        learned = set.union(*makers)
        assert honest.identity.name in learned
        assert eve.name not in learned
        assert trainer.state.log_history[-2]["rollouts/refused"] > 0
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("shoal")]
