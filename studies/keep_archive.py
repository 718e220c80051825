"""Runs one cell of a study and keeps all that its nodes share as an archive, which other studies learn from.

    python studies/keep_archive.py studies/commons.toml "live swarm" 2300 archives/alike

Each node signs with a key that follows from its name and the seed, so the same call gives the same archive. Its
questions are those of its key, as in a swarm of strangers.
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
from shoal.node import Node
from shoal.policy.fetch import fetch_models
from shoal.protocols import Policy
from shoal.rollout import Rollout
from shoal.runs.folder import RunFolder
from shoal.runs.run import Run
from shoal.wire.rollouts import seal
from shoal_extras.archive.format import Row, begin, chunks, write_part
from shoal_lab.bases import make_base
from shoal_lab.cells import Silent
from shoal_lab.experiment import Controlled, Experiment
from shoal_lab.provenance import BASES
from shoal_lab.runner import open_study

BEGAN = 1_790_000_000  # seconds since 1970 of the first round; a round is a minute


class Keeping(Controlled):
    """A node's place in the swarm, whose key its questions follow from."""

    def __init__(self, within: Controlled, name: str, identity: Identity, kept: dict[bytes, Row]) -> None:
        super().__init__(within.swarm, within.settings, within.seed, within.attack)
        self.identity, self.kept = identity, kept
        self.seed_key = (name, identity.id)
        self.name = name
        self.node: Node

    def share(self, rollouts: Sequence[Rollout]) -> None:
        rewards = {scored.rollout.slot: scored for scored in self.node.local}
        for rollout in rollouts:
            scored, own = rewards[rollout.slot], structs.replace(rollout, node=self.identity.name)
            data = seal(own, self.identity, self.name, BEGAN + 60.0 * rollout.round + rollout.slot)
            self.kept[data] = Row.made(data, scored.question, scored.rewards)
        super().share(rollouts)


class Kept(Experiment):
    """Nodes whose rollouts are kept."""

    kept: dict[bytes, Row]

    def make_node(self, name: str, policy: Policy) -> Node:
        node = super().make_node(name, policy)
        assert isinstance(node.swarm, Controlled)
        secret = hashlib.sha256(f"{self.config.seed} {name}".encode()).digest()
        identity = Identity(Ed25519PrivateKey.from_private_bytes(secret))
        node.swarm = place = Keeping(node.swarm, "lagoon", identity, self.kept)
        place.node = node
        return node


def keep(file: Path, arm: str, seed: int, out: Path) -> None:
    study, folder = open_study(file, None, quick=False)
    [cell] = [one for one in study.cells() if one.arm == arm][:1]
    config = study.config(dataclasses.replace(cell, seed=seed), folder)
    fetch_models(config)
    for path in map(Path, config.policy.model):
        if path.parent.name == BASES and not path.exists():
            make_base(study.bases[path.name], study.bases[path.name].start or None, path)
    Kept.kept = {}
    scratch = Path(tempfile.mkdtemp())
    with closing(RunFolder.create(scratch / "run", config.to_toml())) as run, closing(Kept(config, None)) as nodes:
        Run(nodes, run, Silent(lambda round: print(f"round {round}", flush=True)), None).go(Event())
    rows = sorted(Kept.kept.values(), key=lambda row: (row.opened().time, row.id))
    begin(out)
    for chunk in chunks(iter(rows)):
        write_part(out, chunk)
    shutil.rmtree(scratch)
    print(f"{len(rows)} groups in {out}")


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
