"""Which rollouts a node sends and which it learns from.

Of its own rollouts a node takes live ones first. Of peers' it takes live ones at random, as in the paper, but the
makers take turns (`Turns`), so that nobody has more places for having sent more. Only what this node measured itself
counts: its own rewards, its own success rates, and what its last updates did with a maker's rollouts. With `fill`
peers' live rollouts replace own ones without a gradient. To write your own selection, see `examples/own_selection.py`.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shoal.config.sections import SelectionConfig
from shoal.protocols import Pool, UpdateResult
from shoal.rollout import Rollout, Scored
from shoal.selection.turns import Turns

MEMORY = 10  # A success rate is the plain mean of this many own rollouts, and then a moving mean that forgets as fast
LEAST = 0.05  # A single completion whose reward is within this of the baseline teaches nothing


class OwnSuccess(msgspec.Struct):
    """Success rates by task, from this node's own rollouts alone: the baseline of a peer's single completion,
    as a person gives it, which has no group mean."""

    rates: dict[tuple[str, str], tuple[float, int]] = {}
    """For each task and its parameters: the mean reward, and the number of rollouts behind it, up to `MEMORY`."""

    def observe(self, local: Sequence[Scored]) -> None:
        """Counts all own rollouts of a round."""
        for scored in local:
            task = _task(scored)
            rate, count = self.rates.get(task, (0.0, 0))
            count = min(count + 1, MEMORY)
            self.rates[task] = rate + (min(max(scored.mean_reward, 0.0), 1.0) - rate) / count, count

    def with_baseline(self, scored: Scored) -> Scored | None:
        """The rollout ready to be learned from, or None if it carries no gradient.

        A group is compared with its own mean. A single completion gets the success rate as its `baseline`, once there
        is one.
        """
        if len(scored.rewards) > 1:
            return scored if scored.live else None
        rate, count = self.rates.get(_task(scored), (0.0, 0))
        if not count or abs(scored.rewards[0] - rate) < LEAST:
            return None
        return msgspec.structs.replace(scored, baseline=rate)


def _task(scored: Scored) -> tuple[str, str]:
    return scored.question.id.task, scored.question.id.config


FILE = "selection.msgpack"


class FairSelection:
    """Live rollouts first, makers by turns.

        batch = FairSelection().choose(local, pool, I=4, J=4, seed=0)

    A batch has own rollouts in order of slot, then peers'.
    """

    def __init__(self, config: SelectionConfig | None = None) -> None:
        self.config = config or SelectionConfig()
        self._success = OwnSuccess()
        self._turns = Turns()

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
        usable = [u for scored in candidates if (u := self._success.with_baseline(scored)) is not None]
        return self._turns.choose(rng.sample(usable, len(usable)), n, rng, candidates)

    def on_update(self, result: UpdateResult) -> None:
        """Learns each maker's share of the gradient."""
        self._turns.on_update(result)

    def save(self, folder: Path) -> None:
        (folder / FILE).write_bytes(msgspec.msgpack.encode((self._success, self._turns)))

    def load(self, folder: Path) -> None:
        state = msgspec.msgpack.decode((folder / FILE).read_bytes(), type=tuple[OwnSuccess, Turns])
        self._success, self._turns = state


def live_first(local: Sequence[Scored], n: int) -> list[Scored]:
    """At most `n` of `local`, in order of slot: live ones rather than others, earlier ones rather than later ones, as
    in dynamic sampling (DAPO, arXiv 2503.14476)."""
    chosen = sorted(local, key=lambda scored: not scored.live)[:n]
    return sorted(chosen, key=lambda scored: scored.rollout.slot)
