"""One node in a swarm of strangers: what `shoal join` puts together.

    identity, secret -> link (Zenoh) -> admission (own verifier, own thread) -> the node's pool

Nothing here is waited for by training, and training is waited for by nothing here.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from shoal.config.policy import GUPPY, is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.evaluation.judge_client import checked
from shoal.evaluation.judges import Panel
from shoal.identity.keys import Identity
from shoal.identity.secret import OPEN, read_secret
from shoal.rewards import Combined, ExaminedRewards
from shoal.rollout import Rollout
from shoal.runs.atomic import write_atomically
from shoal.runs.record import Watcher
from shoal.runs.swarm_status import STATUS, lines
from shoal.sandbox.examiner import Examiner
from shoal.swarm.admission import Admission
from shoal.swarm.neighbours import Neighbours, check_name
from shoal.swarm.network import NetworkLink
from shoal.swarm.notices import notice_of, seal_notice
from shoal.swarm.transport import TransportOptions
from shoal.swarm.wire import SamplingSettings, seal
from shoal.untrusted import json_safe

EVERY = 2.0
"""Seconds between two such writings."""


class Joined:
    """A node's place in a networked swarm, with all that belongs to it. Close it."""

    def __init__(self, config: Config, identity: Identity, rewards: Combined | None = None) -> None:
        """`rewards`: what answers are rewarded by, where that is not the verifier alone. Its owner closes it."""
        config = config.resolved()
        network = config.network
        self.config = config
        self.identity = identity
        secret = read_secret(Path(network.secret_file), network.swarm) if network.secret_file else OPEN
        self.context = secret.context
        self._examiners = Examiner(config.tasks), Examiner(config.tasks)
        self.panel = Panel(
            config.evaluation.judges,
            identity,
            model=public_name(config.policy.model[0]) or "",
            in_swarm=config.swarm.external > 0,
        )
        self.admission = Admission(
            network.swarm,
            self._examiners[0],
            config.admission,
            num_generations=config.policy.num_generations,
            patient=self._examiners[1],
            rewards=ExaminedRewards(rewards) if rewards else None,
            context=secret.context,
        )
        model = public_name(config.policy.model[0])
        policy = config.policy
        sampling = SamplingSettings(policy.temperature, policy.top_p, int(policy.max_completion_length))

        def sealed(rollout: Rollout) -> bytes:
            public = rollout.public(network.share_logprobs)
            return seal(
                public,
                identity,
                network.swarm,
                time.time(),
                model=model,
                sampling=sampling,
                kind="program" if is_endpoint(config.policy.model[0]) else "model",
                context=secret.context,
            )

        self.link = NetworkLink(
            transport_options(config),
            network.swarm,
            identity,
            sealed,
            self.admission,
            secret=secret,
            max_bytes=config.admission.max_bytes,
            neighbours=Neighbours(identity.id, Random(), start=network.neighbours),
        )

    def tell(self, row: Mapping[str, Any], learned: Sequence[Mapping[str, Any]]) -> None:
        """Says of a round, to whoever watches, how it went and whose rollouts were learned from."""
        swarm = self.config.network.swarm
        model = public_name(self.config.policy.model[0])
        notice = notice_of(row, learned, swarm, self.identity.public, model, time.time())
        self.link.tell(seal_notice(notice, self.identity, self.context))

    def status(self) -> dict[str, Any]:
        return {"time": time.time(), **self.link.status(), "admission": self.admission.status()}

    def close(self) -> None:
        self.link.close()
        self.panel.close()
        for examiner in self._examiners:
            examiner.close()


class Lookout:
    """Stands between a run and its display: tells the link what the pool needs, shows how the swarm stands, and writes
    it into the run's folder every few seconds, also while a round takes long."""

    def __init__(self, display: Watcher, place: Joined, folder: Path, wanted: int) -> None:
        self._display = display
        self._place = place
        self._folder = folder
        self._note = ""
        self._pool = {"rollouts": 0, "live": 0, "wanted": wanted}
        self._share: float | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="shoal-lookout", daemon=True)
        self._thread.start()

    def status(self, text: str) -> None:
        self._display.status(text)

    def note(self, text: str) -> None:
        self._note = text

    def update(self, rows: Sequence[Mapping[str, Any]], round: int) -> None:
        row = rows[0]
        if row.get("rollouts/pool") is not None:
            self._pool |= {"rollouts": row["rollouts/pool"], "live": row["rollouts/live_pool"]}
            self._place.link.need(self._pool["live"], self._pool["wanted"])
        self._share = row.get("gradient/external")
        self._display.update(rows, round)
        self._show()

    def panel(self, lines: Sequence[str]) -> None:
        self._display.panel(lines)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(EVERY):
            self._show()

    def _show(self) -> None:
        status = self._place.status() | {"pool": self._pool}
        with contextlib.suppress(UserError):  # a full disk is the run's to tell
            write_atomically(self._folder / STATUS, json.dumps(json_safe(status)).encode())
        self._display.panel(lines(status, self._share))
        self._display.note("; ".join(filter(None, (status["note"], self._note))))


def public_name(model: str) -> str | None:
    """A model's name as strangers may know it: of the Hub or built in, not a path or an address of this machine."""
    on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", model) and not Path(model).exists()
    return model if on_hub or model == GUPPY else None


def check_network(config: Config) -> None:
    """Raises `UserError` for endpoints, certificates and names that cannot be, before anything is loaded or written."""
    transport_options(config)
    check_name(config.network.swarm)
    for address in config.evaluation.judges:
        checked(address)
    if config.network.secret_file:
        read_secret(Path(config.network.secret_file), config.network.swarm)


def transport_options(config: Config) -> TransportOptions:
    network = config.network
    return TransportOptions(
        connect=tuple(network.connect),
        listen=tuple(network.listen),
        lan=None if network.lan else False,
        ca=_path(network.tls_ca),
        certificate=_path(network.tls_certificate),
        key=_path(network.tls_key),
    )


def _path(text: str) -> Path | None:
    return Path(text) if text else None
