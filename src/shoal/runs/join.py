"""What `shoal join` puts together: a node's membership in a swarm of strangers, and the judges whose questions it
answers."""

from __future__ import annotations

from shoal.admission.limits import AdmissionLimits
from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.identity.keys import Identity
from shoal.membership import settings
from shoal.membership.connection import SwarmConnection
from shoal.membership.settings import public_name
from shoal.rewards import Combined, ExaminedRewards
from shoal.tasks.create import create_stages
from shoal.wire.rollouts import SamplingSettings
from shoal_host.judge.client import parse_judge_address
from shoal_host.judge.judges import Judges


class LearnerConnection(SwarmConnection):
    """A learning node's place in a networked swarm. Close it."""

    def __init__(
        self,
        config: Config,
        identity: Identity,
        rewards: Combined | None = None,
        limits: AdmissionLimits | None = None,
        neighbours: int | None = None,
        waits: bool = False,
    ) -> None:
        """`rewards`: what answers are rewarded by, if not by the verifier alone; the caller closes it. `waits`: nothing
        is admitted until `start` is called."""
        config = config.resolved()
        policy = config.policy
        self.stages = create_stages(config.tasks.stages, identity.name)
        model = None if policy.factory else public_name(policy.model[0])
        super().__init__(
            config,
            identity,
            kind="program" if is_endpoint(policy.model[0]) else "model",
            model=model,
            sampling=SamplingSettings(policy.temperature, policy.top_p, int(policy.max_completion_length)),
            rewards=ExaminedRewards(rewards) if rewards else None,
            limits=limits,
            stages=self.stages,
            neighbours=neighbours,
            waits=waits,
        )
        self.judges = Judges(
            config.evaluation.judges,
            identity,
            model=model or "",
            in_swarm=config.round.peers > 0,
            display_name=config.network.display_name,
        )

    def close(self) -> None:
        super().close()
        self.judges.close()


def check_network(config: Config) -> None:
    """Raises `UserError` for settings of network and judges that cannot be used, before anything is loaded."""
    settings.check_network(config)
    for address in config.evaluation.judges:
        parse_judge_address(address)
