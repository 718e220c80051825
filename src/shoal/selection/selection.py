"""Which rollouts a node sends and which it learns from.

Of its own rollouts a node takes live ones first. Of peers' it takes live ones at random, as in the paper, but the
makers take turns (`Turns`), so that nobody has more places for having sent more. Only what this node measured itself
counts: its own rewards, its own success rates, and what its last updates did with a maker's rollouts.

The settings of `[selection]` add: peers' live rollouts in place of own ones without a gradient (`fill`), a quota for
newcomers, and trust. To write your own selection, see `examples/own_selection.py`.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from shoal.config.sections import SelectionConfig
from shoal.errors import UserError
from shoal.protocols import Pool, UpdateResult
from shoal.rollout import Rollout, Scored
from shoal.selection.makers import Newcomers, Trust, digest
from shoal.selection.success import OwnSuccess
from shoal.selection.turns import Turns

ALL_NEWCOMERS = "newcomers"
"""The name under which newcomers are trusted, all together; otherwise a new name would bring new trust."""
FILE = "selection.msgpack"


class FairSelection:
    """Live rollouts first, makers by turns.

        batch = FairSelection().choose(local, pool, I=4, J=4, seed=0)

    A batch has own rollouts in order of slot, then peers'.
    """

    def __init__(self, config: SelectionConfig | None = None, gate: float = 0.0) -> None:
        """`gate`: the learner's `peers.gate`, without which there is nothing to base trust on. Raises `UserError`
        if trust is asked for without a gate."""
        config = config or SelectionConfig()
        if config.rule == "trusting" and not gate:
            raise UserError("--selection trusting needs the gate that it measures: add --peer-gate 1.5, for instance")
        self.config = config
        self._success = OwnSuccess()
        self._turns = Turns()
        self._newcomers = Newcomers()
        self._trusting, self._trust = config.rule == "trusting", Trust()
        self._successes = Counter[str]()
        """The number of successes of each maker in the last batch."""

    def to_send(self, local: Sequence[Scored]) -> list[Rollout]:
        """All of them."""
        return [scored.rollout for scored in local]

    def choose(self, local: Sequence[Scored], pool: Pool, I: int, J: int, seed: int) -> list[Scored]:
        """I of `local` and J of `pool`. With `fill`, further rollouts of `pool` replace own ones that are not live. If
        no own rollout is live, one of them stays."""
        self._success.observe(local)
        own = live_first(local, I)
        dead = sum(not scored.live for scored in own) if self.config.fill and J else 0
        dead = min(dead, max(0, len(own) - 1))  # one stays: the learner compares peers' text with it
        of_peers = self.choose_of_peers(pool.candidates(), J + dead, seed)
        pool.remove(of_peers)
        own = live_first(own, I - max(0, len(of_peers) - J))
        return own + [scored.as_peer() for scored in of_peers]

    def choose_of_peers(self, candidates: Sequence[Scored], n: int, seed: int) -> list[Scored]:
        """At most `n` live ones of `candidates`. A single completion comes back with a `baseline`."""
        rng = random.Random(seed)
        if self.config.newcomer_share < 1:
            self._newcomers.observe(candidates)
        usable = [u for scored in candidates if (u := self._success.with_baseline(scored)) is not None]
        considered = [s for s in usable if s.keep_probability >= 1 or rng.random() < s.keep_probability]
        shuffled = rng.sample(considered, len(considered))
        first = self._trusted({scored.rollout.node for scored in candidates}, rng)
        tiers = [[s for s in shuffled if (s.rollout.node in first) == early] for early in (True, False)]
        bounded = not self._trusting and self.config.newcomer_share == 1  # both give some makers' places to others
        chosen = self._turns.choose(tiers, n, rng, candidates, self._newcomer_quota(n), bounded)
        self._successes.clear()
        for scored in chosen:
            expected = scored.mean_reward if scored.baseline is None else scored.baseline
            self._successes[scored.rollout.node] += sum(reward > expected for reward in scored.rewards)
        return chosen

    def on_update(self, result: UpdateResult) -> None:
        """Learns each maker's share of the gradient, and what the gate left out."""
        self._turns.on_update(result)
        if self._trusting:
            names = {maker: {digest(maker), self._trust_name(maker)} for maker in self._successes}
            self._trust.observe(result.gated_shares, self._successes, names)

    def save(self, folder: Path) -> None:
        state = self._success, self._turns, self._newcomers, self._trust
        (folder / FILE).write_bytes(msgspec.msgpack.encode(state))

    def load(self, folder: Path) -> None:
        state = msgspec.msgpack.decode((folder / FILE).read_bytes(), type=tuple[OwnSuccess, Turns, Newcomers, Trust])
        self._success, self._turns, self._newcomers, self._trust = state

    def _trusted(self, makers: set[str], rng: random.Random) -> set[str]:
        """The makers that come first in this update: one draw for each name, however much it sent."""
        if not self._trusting:
            return makers
        names = {maker: self._trust_name(maker) for maker in makers}
        first = {name for name in sorted({*names.values()}) if rng.random() < self._trust.of(name)}
        return {maker for maker, name in names.items() if name in first}

    def _trust_name(self, maker: str) -> str:
        return ALL_NEWCOMERS if self._is_newcomer(maker) else digest(maker)

    def _is_newcomer(self, maker: str) -> bool:
        return self.config.newcomer_share < 1 and maker in self._newcomers

    def _newcomer_quota(self, n: int) -> Callable[[Scored], bool]:
        """Says whether a rollout is within the newcomers' quota of an update of `n`, and counts it."""
        most = max(1, math.floor(self.config.newcomer_share * n + 1e-9))
        taken = 0

        def permitted(scored: Scored) -> bool:
            nonlocal taken
            if not self._is_newcomer(scored.rollout.node):
                return True
            taken += 1
            return taken <= most

        return permitted


def live_first(local: Sequence[Scored], n: int) -> list[Scored]:
    """At most `n` of `local`, in order of slot: live ones rather than others, earlier ones rather than later ones, as
    in dynamic sampling (DAPO, arXiv 2503.14476)."""
    chosen = sorted(local, key=lambda scored: not scored.live)[:n]
    return sorted(chosen, key=lambda scored: scored.rollout.slot)
