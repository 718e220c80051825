"""A node's membership in a swarm of strangers: identity, secret, transport, admission and neighbours make a link.

    member = SwarmConnection(config, identity, kind="human")
    member.link.share(rollouts)
    member.link.receive()            # scored and admitted by this node
    member.close()

Learning nodes (`runs.join`) and people (`apps.human`) use it alike.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from shoal.admission.admission import Admission
from shoal.admission.limits import AdmissionLimits
from shoal.config.policy import EMBEDDED
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.identity.secret import OPEN, Secret, read_secret
from shoal.policy.named import named
from shoal.protocols import Stages
from shoal.rewards import ExaminedRewards
from shoal.rollout import Rollout
from shoal.sandbox.examiner import Examiner
from shoal.transports.zenoh.key_expressions import check_name
from shoal.transports.zenoh.link import NetworkLink
from shoal.transports.zenoh.neighbours import START, Neighbours
from shoal.transports.zenoh.session import TransportOptions, node_config
from shoal.wire.notices import Notice, notice_of, seal_notice
from shoal.wire.rollouts import Kind, SamplingSettings, seal


class SwarmConnection:
    """A node's place in a networked swarm. Close it. Raises `UserError` for settings that cannot be used."""

    def __init__(
        self,
        config: Config,
        identity: Identity,
        *,
        kind: Kind = "model",
        model: str | None = None,
        sampling: SamplingSettings | None = None,
        rewards: ExaminedRewards | None = None,
        limits: AdmissionLimits | None = None,
        stages: Stages | None = None,
        neighbours: int = START,
        on_notice: Callable[[Notice], None] | None = None,
        waits: bool = False,
    ) -> None:
        """`kind`, `model`, `sampling`: what other nodes are told about this one. `rewards`: beside the verifier.
        `limits`: by default those of `config`. `stages`: without them their questions are refused. `neighbours`: how
        many peers to listen to at the start. `on_notice`: hears the notices of all nodes. `waits`: nothing is admitted
        until `link.start` is called."""
        network = config.network
        self.config = config
        self.identity = identity
        self.swarm = network.swarm
        self.kind, self.model, self.sampling = kind, model, sampling
        self.secret = secret_of(config)
        options = transport_options(config)
        limits = limits or AdmissionLimits.of(config)
        self._examiners = Examiner(config.tasks), Examiner(config.tasks)
        self.admission = Admission(
            self.swarm,
            self._examiners[0],
            limits,
            num_generations=config.policy.num_generations,
            patient=self._examiners[1],
            rewards=rewards,
            stages=stages,
            context=self.secret.context,
            own=identity.public,
        )
        self.link = NetworkLink(
            options,
            self.swarm,
            identity,
            self.seal,
            self.admission,
            secret=self.secret,
            max_bytes=limits.max_bytes,
            neighbours=Neighbours(identity.id, Random(), start=neighbours),
            on_notice=on_notice,
            waits=waits,
        )

    def seal(self, rollout: Rollout) -> bytes:
        """The signed bytes of an own rollout. The link calls it on a thread of its own."""
        return seal(
            rollout,
            self.identity,
            self.swarm,
            time.time(),
            context=self.secret.context,
            model=self.model,
            sampling=self.sampling,
            kind=self.kind,
            display_name=self.config.network.display_name,
        )

    def tell(self, row: Mapping[str, Any], learned: Sequence[Mapping[str, Any]]) -> None:
        """Publishes for people who watch how a round went and whose rollouts it learned from (`notices`)."""
        display_name = self.config.network.display_name
        notice = notice_of(row, learned, self.swarm, self.identity.public, self.model, time.time(), display_name)
        self.link.tell(seal_notice(notice, self.identity, self.secret.context))

    def status(self) -> dict[str, Any]:
        """The state of link and admission as plain data."""
        link = self.link.status()
        note = "; ".join(filter(None, (link["note"], self.admission.differing.line)))
        return {
            "time": time.time(),
            "display_name": self.config.network.display_name,
            **link,
            "note": note,
            "admission": self.admission.status(),
        }

    def close(self) -> None:
        self.link.close()
        for examiner in self._examiners:
            examiner.close()


def check_network(config: Config) -> None:
    """Raises `UserError` for endpoints, certificates, names and secrets that cannot be used, and for rounds with more
    questions than others take."""
    asked = config.swarm.local if config.swarm.questions_per_round == "auto" else config.swarm.questions_per_round
    if asked > AdmissionLimits.max_slots:
        raise UserError(f"others accept {AdmissionLimits.max_slots} questions of a round: lower --questions-per-round")
    node_config(transport_options(config))
    check_name(config.network.swarm)
    secret_of(config)


def transport_options(config: Config) -> TransportOptions:
    """The endpoints and certificates in the settings. Raises `UserError`."""
    network = config.network
    return TransportOptions(
        connect=tuple(network.connect),
        listen=tuple(network.listen),
        lan=None if network.lan else False,
        ca=_path(network.tls_ca),
        certificate=_path(network.tls_certificate),
        key=_path(network.tls_key),
    )


def secret_of(config: Config) -> Secret:
    """The secret of the swarm in the settings. Raises `UserError`."""
    network = config.network
    return read_secret(Path(network.secret_file), network.swarm) if network.secret_file else OPEN


def public_name(model: str) -> str | None:
    """A model's name as strangers may see it: a short name or one on the Hub, no path or address of this machine."""
    on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", model) and not Path(model).exists()
    return model if on_hub or model in EMBEDDED or named(model) else None


def _path(text: str) -> Path | None:
    return Path(text) if text else None
