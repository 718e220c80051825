"""Settings of `[selection]`: which rollouts a node sends and learns from."""

from __future__ import annotations

from pydantic import Field

from shoal.config.section import Section


class SelectionConfig(Section):
    """Which rollouts a node learns from. The paper's rule is: others' live ones, at random."""

    fill: bool = True
    """Replace own rollouts that carry no gradient by others' live ones, if the pool has more than J of them."""
    newcomer_share: float = Field(1.0, gt=0, le=1)
    """The share of others' places in an update, but at least one, for all peers with fewer than 16 rollouts so far,
    and those that admission does not know yet."""
    trust: bool = False
    """Prefer peers whose successes this node's policy finds likely (needs --external-gate)."""
    factory: str = ""
    """A selection of your own, in place of shoal's. It is called with the Config (see examples/own_selection.py)."""
