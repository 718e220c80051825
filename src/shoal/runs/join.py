"""What `shoal join` puts together: a node's membership in a swarm of strangers, and the judges whose questions it
answers."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from shoal.config.own_code import call_offered, offered
from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.membership.connection import SwarmConnection
from shoal.membership.settings import public_name
from shoal.protocols import Policy
from shoal.rewards import Combined

JUDGES: Final = "shoal.judges"
"""Entry points of a node's side of judges: functions of addresses, identity, model, in_swarm and display_name."""


class Judges(Protocol):
    """The judges of a node, which it asks for a question after its rounds."""

    trouble: str
    """Which judges gave no score the last time, and why; or ""."""

    def ask(self, policy: Policy, round: int, seed: int) -> dict[str, Any]:
        """The figures of this round: `judge/pass@1` and others. Raises nothing, whatever a judge does."""
        ...

    def close(self) -> None: ...


class LearnerConnection(SwarmConnection):
    """A learning node's place in a networked swarm. Close it."""

    def __init__(
        self,
        config: Config,
        identity: Identity,
        rewards: Combined | None = None,
        waits: bool = False,
    ) -> None:
        """`rewards`: what answers are rewarded by, if not by the verifier alone; the caller closes it. `waits`: nothing
        is admitted until `start` is called."""
        config = config.resolved()
        policy = config.policy
        model = public_name(policy.model[0])
        super().__init__(
            config,
            identity,
            kind="program" if is_endpoint(policy.model[0]) else "model",
            model=model,
            rewards=rewards,
            waits=waits,
        )
        self.judges = make_judges(
            config.evaluation.judges,
            identity,
            model=model or "",
            in_swarm=config.round.peers > 0,
            display_name=config.network.display_name,
        )

    def close(self) -> None:
        super().close()
        if self.judges:
            self.judges.close()


def make_judges(addresses: Sequence[str], identity: Identity, **said: Any) -> Judges | None:
    """The judges at these addresses; None if there are none. Raises `UserError` if no package speaks with judges."""
    if not addresses:
        return None
    if "judges" not in offered(JUDGES):
        raise UserError("evaluation.judges needs a package that speaks with judges: pip install 'shoal[host]'")
    made: Judges = call_offered(JUDGES, "judges", addresses, identity, **said)
    return made
