"""How many own and how many foreign rollouts a node learns from: I and J, which move within their sum.

Two signs say that J is too large or too small, each known to the node alone:

- **ess**: the effective sample size of the external rollouts, as a share of their number, which the learner measures
  (`external/ess`). Where most of them weigh little under the own policy, they are another's experience more than one's
  own; a small effective sample size announces collapse (arXiv 2602.17616).
- **progress**: the mean reward of own rollouts, unfiltered. Own questions are new each round, so that it is measured on
  what was not trained on. J climbs: it moves, and if reward then rises less than before, it moves back. Rises of single
  periods are noisy where I and G are small, and become less as learning ends: both draw J back to where it was.

This is no part of the loss: that is `learner.balance`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from shoal.config.settings import Config
from shoal.errors import UserError

PAUSE = 5
"""Rounds from one move to the next at least."""
PERIOD = 20
"""Rounds over which progress is measured, before a move and after it."""
DECAY = 0.2
"""What each round counts in the moving mean of effective sample sizes."""
SCARCE, AMPLE = 0.5, 0.8
"""Effective sample sizes below which J falls and above which it rises."""
FILE = "balance.json"

Sign = Literal["ess", "progress", "both"]


class Balance:
    """I and J. Neither is moved to 0."""

    def __init__(self, local: int, external: int, sign: Sign, questions: int | None = None) -> None:
        """`questions`: own ones in each round, where these are not as many as I. I does not grow beyond them."""
        total = local + external
        self.local, self.external = local, external
        self.sign = sign
        self._questions = None if questions == local else questions
        self._fewest = 1 if self._questions is None else max(1, total - max(self._questions, local))
        self._most = total - 1
        self._ess: float | None = None
        """A moving mean."""
        self._rested = 0
        """Rounds since the last move."""
        self._direction = 1
        """Where progress is tried next: more external rollouts, or fewer."""
        self._rounds = 0
        """Rounds of the period in hand."""
        self._rise = 0.0
        """Of reward in that period: the least-squares slope, up to a constant factor."""
        self._before: float | None = None
        """The rise in the period before the last move of this kind; none where there is none to judge."""

    @property
    def shares(self) -> tuple[int, int, int]:
        """I, J and how many own questions there are in the next round."""
        return self.local, self.external, self.local if self._questions is None else self._questions

    def observe(self, update: Mapping[str, float], reward: float | None) -> None:
        """Moves by at most one after a round with these metrics of its update and this mean reward of all own
        rollouts, if there were any."""
        self._rested += 1
        self._ess = _mean(self._ess, update.get("external/ess"))
        moved = 0 if self.sign == "progress" else self._by_ess()
        if moved:
            self._measure_anew()
        elif self.sign != "ess" and reward is not None:
            self._by_progress(reward)

    def _by_ess(self) -> int:
        if self._ess is None:
            return 0
        return self._move((self._ess > AMPLE) - (self._ess < SCARCE))

    def _by_progress(self, reward: float) -> None:
        self._rise += (self._rounds - (PERIOD - 1) / 2) * reward
        self._rounds += 1
        if self._rounds < PERIOD:
            return
        rise, before = self._rise, self._before
        self._measure_anew()
        if self.sign == "both" and self._ess is not None and not SCARCE <= self._ess <= AMPLE:
            return  # J is where the other sign wants it
        if before is not None and rise < before:
            self._move(-self._direction)
            self._direction *= -1
        elif self._move(self._direction):
            self._before = rise
        else:
            self._direction *= -1  # at a bound

    def _measure_anew(self) -> None:
        self._rounds, self._rise, self._before = 0, 0.0, None

    def _move(self, step: int) -> int:
        """By how much J moved: `step`, or not at all."""
        if not step or self._rested < PAUSE or not self._fewest <= self.external + step <= self._most:
            return 0
        self.external += step
        self.local -= step
        self._rested = 0
        return step

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps({name: getattr(self, name) for name in _STATE}))

    def load(self, folder: Path) -> None:
        state: dict[str, Any] = json.loads((folder / FILE).read_text())
        for name in _STATE:
            setattr(self, name, state[name])


_STATE = ("local", "external", "_ess", "_rested", "_direction", "_rounds", "_rise", "_before")


def make_balance(config: Config) -> Balance | None:
    """What moves I and J of a run with `config`; none where they stay as they are, or where nothing is shared. Raises
    `UserError` where the effective sample size would always be full, and J would rise whatever happens."""
    swarm, sign = config.swarm, config.sampling.adapt
    if sign == "none" or not swarm.external or swarm.local + swarm.external < 2:
        return None
    if sign != "progress" and config.external.weight == "none" and not config.external.gate:
        raise UserError(
            f"sampling.adapt = '{sign}' needs external rollouts to have weights, of which there are none: take "
            "--external.weight topr, an --external.gate, or --adapt progress"
        )
    return Balance(swarm.local, swarm.external, sign, None if swarm.asked == "auto" else swarm.asked)


def _mean(mean: float | None, value: float | None) -> float | None:
    """The moving mean after `value`."""
    if value is None or not math.isfinite(value):
        return mean
    return value if mean is None else mean + DECAY * (value - mean)
