"""Runs one cell of a study and keeps all that its nodes share as an archive, which other studies learn from.

    python studies/keep_archive.py studies/commons.toml "live swarm" 2300 archives/alike

Each node signs with a key that follows from its name and the seed, so the same call gives the same archive. Its
questions are those of its key, as in a swarm of strangers. A model that the study makes is named as in the study,
`base:able`. What is kept is what `shoal archive` keeps of a live swarm: `shoal verify archives/alike` finds no fault.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from threading import Event

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import structs

from shoal.identity.keys import Identity
from shoal.membership.settings import public_name
from shoal.node import Node
from shoal.policy.fetch import fetch_models
from shoal.protocols import Policy
from shoal.rollout import Rollout
from shoal.runs.folder import RunFolder
from shoal.runs.run import Run
from shoal.wire.rollouts import seal
from shoal_extras.archive.follow import Keeper, Message
from shoal_extras.archive.format import Row
from shoal_lab.bases import make_base
from shoal_lab.cells import Silent
from shoal_lab.experiment import Controlled, Experiment
from shoal_lab.provenance import BASES
from shoal_lab.runner import open_study

BEGAN = 1_790_000_000  # seconds since 1970 of the first round; a round is a minute


class Keeping(Controlled):
    """A node's place in the swarm, whose key its questions follow from."""

    def __init__(self, within: Controlled, name: str, identity: Identity, model: str, kept: list[Message]) -> None:
        super().__init__(within.swarm, within.settings, 0, within.attack)
        self.identity, self.model, self.kept = identity, model, kept
        self.seed_key = (name, identity.id)
        self.name = name

    def share(self, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            own = structs.replace(rollout, node=self.identity.name)
            now = BEGAN + 60.0 * rollout.round + rollout.slot
            self.kept.append((self.identity.id, seal(own, self.identity, self.name, now, model=self.model)))
        super().share(rollouts)


class Kept(Experiment):
    """Nodes whose rollouts are kept."""

    kept: list[Message]

    def make_node(self, name: str, policy: Policy) -> Node:
        node = super().make_node(name, policy)
        assert isinstance(node.swarm, Controlled)
        secret = hashlib.sha256(f"{self.config.seed} {name}".encode()).digest()
        identity = Identity(Ed25519PrivateKey.from_private_bytes(secret))
        model = model_name(self.config.node_models[name])
        node.swarm = Keeping(node.swarm, self.config.network.name, identity, model, self.kept)
        return node


def model_name(model: str) -> str:
    """What a model is called in public: a base of the study as the study calls it."""
    return public_name(model) or f"base:{Path(model).name}"


def keep(file: Path, arm: str, seed: int, out: Path) -> None:
    study, folder = open_study(file, None, quick=False)
    [cell] = [one for one in study.cells() if one.arm == arm][:1]
    config = study.config(dataclasses.replace(cell, seed=seed), folder)
    fetch_models(config)
    for path in map(Path, config.policy.model):
        if path.parent.name == BASES and not path.exists():
            make_base(study.bases[path.name], study.bases[path.name].start or None, path)
    Kept.kept = []
    scratch = Path(tempfile.mkdtemp())
    with closing(RunFolder.create(scratch / "run", config.to_toml())) as run, closing(Kept(config, None)) as nodes:
        Run(nodes, run, Silent(lambda round: print(f"round {round}", flush=True)), None).go(Event())
    shutil.rmtree(scratch)
    with closing(Keeper(config, out)) as keeper:
        for message in sorted(Kept.kept, key=lambda message: (Row(message[1]).opened().time, Row(message[1]).id)):
            keeper.take([message])
    print(f"{keeper.kept} groups in {out}; left out: {dict(keeper.left_out)}")


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
