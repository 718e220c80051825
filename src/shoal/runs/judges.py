"""The judges whose questions a node of a swarm answers."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from shoal.config.own_code import call_offered, offered
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.membership.settings import public_name
from shoal.protocols import Policy
from shoal.rollout import Question

JUDGES: Final = "shoal.judges"
"""Entry points of a node's side of judges: functions of addresses, identity, model, in_swarm and display_name."""


class Judges(Protocol):
    """The judges of a node, which it asks for a question after its rounds."""

    trouble: str
    """Which judges gave no score the last time, and why; or ""."""

    def ask(self, policy: Policy, round: int, seed: int, own: Sequence[Question]) -> dict[str, Any]:
        """The figures of this round: `judge/pass@1` and others. Raises nothing, whatever a judge does. `own`: the
        node's own questions, by which those of judges are bounded."""

    def close(self) -> None: ...


def make_judges(config: Config, identity: Identity) -> Judges | None:
    """The judges of a node; None if it has none. Raises `UserError` if no package speaks with judges."""
    addresses = config.evaluation.judges
    if not addresses:
        return None
    if "judges" not in offered(JUDGES):
        raise UserError("evaluation.judges needs a package that speaks with judges: pip install 'shoal[host]'")
    made: Judges = call_offered(
        JUDGES,
        "judges",
        addresses,
        identity,
        model=public_name(config.policy.model[0]) or "",
        in_swarm=config.round.peers > 0,
        display_name=config.network.display_name,
    )
    return made
