"""Fair shares of an update: makers take turns, however much any of them sends.

Makers come in random order, and each gives one rollout before anybody gives a second. Three bounds go with it:

- Nobody gives more than half of the places, unless nobody else has anything to give.
- Newcomers together give at most half of the places while known makers have something left: new names cost nothing.
- With four makers or more, those above the average share of the gradient give one rollout or none, by a coin, until the
  others catch up. Otherwise a maker that always has something to give would have most of the gradient whenever the
  others have little. Newcomers do not count in the average of known makers.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from statistics import fmean

import msgspec

from shoal.protocols import UpdateResult
from shoal.rollout import Scored

FADE = 0.98  # what each update leaves of the shares of earlier ones
FORGOTTEN = 0.05
"""A sum of shares below this is forgotten. The sums of all makers stay below 1 / (1 - FADE), so there are never more
than a thousand."""
SEVERAL = 4  # makers among whom one may be ahead


class Turns(msgspec.Struct):
    """Chooses rollouts by turns, and remembers each maker's recent share of the peers' gradient."""

    given: dict[str, float] = {}
    """For each maker the sum of its shares of the peers' gradient, fading."""
    last: dict[str, int] = {}
    """How many rollouts of each maker were chosen since the last update."""

    def choose(self, shuffled: Iterable[Scored], n: int, rng: Random, present: Iterable[Scored] = ()) -> list[Scored]:
        """At most `n` of `shuffled`, each maker's in the order in which it gives them. `present`: the whole pool, which
        tells who is there."""
        waits = {maker: rng.randrange(2) for maker in sorted(self._ahead(present))}
        chosen: list[Scored] = []
        last = Counter[str]()
        newcomers = 0
        queues: dict[str, deque[Scored]] = defaultdict(deque)
        for scored in shuffled:
            queues[scored.rollout.node].append(scored)
        most = (n + 1) // 2 if len(queues) > 1 else n
        order = list(queues)
        rng.shuffle(order)
        waiting = True
        while waiting and len(chosen) < n:
            waiting = False
            for maker in order:
                queue = queues[maker]
                if not queue or len(chosen) == n or last[maker] >= waits.get(maker, most):
                    continue
                known = any(left and not left[0].newcomer for left in queues.values())
                if queue[0].newcomer and newcomers >= n // 2 and known:
                    continue
                waiting = True
                chosen.append(queue.popleft())
                last[maker] += 1
                newcomers += chosen[-1].newcomer
        self.last = Counter(self.last) + last
        return chosen

    def on_update(self, result: UpdateResult) -> None:
        """Learns how much each maker gave: its share of the gradient, or of the places if there was no gradient."""
        gradient = {maker: result.gradient_shares.get(maker, 0.0) for maker in self.last}
        shares: Mapping[str, float] = gradient if sum(gradient.values()) else self.last
        total, self.last = sum(shares.values()), {}
        if not total:
            return
        faded = {maker: FADE * given for maker, given in self.given.items()}
        for maker, share in shares.items():
            faded[maker] = faded.get(maker, 0.0) + share / total
        self.given = {maker: given for maker, given in faded.items() if given >= FORGOTTEN}

    def _ahead(self, present: Iterable[Scored]) -> set[str]:
        """The makers who have given more than the others on average, where there are several. Those who have given of
        late count, too: their rollouts may have been taken as fast as they came."""
        newcomers = dict.fromkeys(self.given, True) | {scored.rollout.node: scored.newcomer for scored in present}
        known = [maker for maker, newcomer in newcomers.items() if not newcomer]
        return self._above(known) | (self._above([*newcomers]) - {*known})

    def _above(self, makers: Sequence[str]) -> set[str]:
        """The makers above the mean, if there are at least four."""
        if len(makers) < SEVERAL:
            return set()
        mean = fmean(self.given.get(maker, 0.0) for maker in makers)
        return {maker for maker in makers if self.given.get(maker, 0.0) > mean * (1 + 1e-9)}
