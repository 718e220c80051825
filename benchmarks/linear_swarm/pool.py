"""All pools of `linear` at once: `swarm.pool.Pool` and `sampling.UniformSampler` without a loop over nodes.

As there, a pool takes in dead rollouts too, drops what is more than `max_age` rounds old, keeps the newest `size`, and
gives each rollout to be learned from once. Rollouts of one round reach each node in an order of its own, at random.
Shares of the pool and turns by maker are left out: among many nodes that send alike, each has few rollouts in a pool.

Shape suffixes as in `linear`; M rollouts that all nodes make in a round, P places: those of all rounds that are kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from linear_swarm.world import Groups, Ids


class LinearPool:
    """What each node may sample from: others' rollouts, or with `own` its own (for controls)."""

    def __init__(self, nodes: int, slots: int, size: int, max_age: int, own: bool = False) -> None:
        self.nodes, self.slots, self.size = nodes, slots, size
        self.arriving = slots if own else (nodes - 1) * slots
        """Rollouts that reach a node in a round."""
        self.crowded = not own and self.arriving >= size
        """The newest round fills every pool: nothing older is in it, and what a node has used is gone by the next."""
        self.window = 1 if self.crowded else max_age + 1
        self.makers_M = np.arange(nodes).repeat(slots)
        self._offered_NM = (self.makers_M == np.arange(nodes)[:, None]) == own if not self.crowded else None
        places = self.window * len(self.makers_M)
        self._groups: list[NDArray[np.generic]] = []
        self._live_P = np.zeros(places, bool)
        self._held_NP = np.zeros((nodes, 0 if self.crowded else places), bool)
        self._arrived_NP = np.zeros(self._held_NP.shape)
        """Round and, behind the decimal point, the order within it."""

    def add(self, groups: Groups, round: int, rng: np.random.Generator) -> None:
        """Takes in every node's rollouts of a round, and drops what is too old by then or too much."""
        M = len(self.makers_M)
        here = slice(round % self.window * M, (round % self.window + 1) * M)
        flat = [array.reshape(M, *array.shape[2:]) for array in groups.arrays]
        if not self._groups:
            self._groups = [np.zeros((len(self._live_P), *array.shape[1:]), array.dtype) for array in flat]
        for kept, array in zip(self._groups, flat, strict=True):
            kept[here] = array
        self._live_P[here] = groups.live_NB.reshape(-1)
        if self._offered_NM is not None:
            self._held_NP[:, here] = self._offered_NM
            self._arrived_NP[:, here] = round + rng.random((self.nodes, M))
            self._trim()

    def sample(self, n: int, rng: np.random.Generator) -> Ids:
        """Places (N, n) of up to `n` live rollouts for each node, then -1. They leave its pool."""
        return self._from_newest(n, rng) if self.crowded else self._from_held(n, rng)

    def take(self, places_NJ: Ids) -> Groups:
        """The rollouts at these places; anything for -1."""
        return Groups(*(array[places_NJ] for array in self._groups))  # type: ignore[arg-type]

    def candidates(self, node: int) -> Ids:
        """Places of the live rollouts in a node's pool, unless that is crowded."""
        return np.flatnonzero(self._held_NP[node] & self._live_P)

    def _trim(self) -> None:
        surplus = self._held_NP.shape[1] - self.size
        if surplus > 0 and (self._held_NP.sum(1) > self.size).any():
            arrived_NP = np.where(self._held_NP, self._arrived_NP, -1.0)
            self._held_NP &= arrived_NP >= np.partition(arrived_NP, surplus, axis=1)[:, surplus, None]

    def _from_held(self, n: int, rng: np.random.Generator) -> Ids:
        """Those with the least random numbers."""
        keys_NP = np.where(self._held_NP & self._live_P, rng.random(self._held_NP.shape), 2.0)
        order_NJ = keys_NP.argsort(1)[:, :n]
        found_NJ = np.take_along_axis(keys_NP, order_NJ, 1) < 1
        row_K, column_K = np.nonzero(found_NJ)
        self._held_NP[row_K, order_NJ[row_K, column_K]] = False
        return np.pad(np.where(found_NJ, order_NJ, -1), ((0, 0), (0, n - order_NJ.shape[1])), constant_values=-1)

    def _from_newest(self, n: int, rng: np.random.Generator) -> Ids:
        """How many live ones are among the `size` that a node keeps is hypergeometric; which ones, by Floyd's algorithm
        (Bentley and Floyd, CACM 30, 1987): n distinct numbers below `others` with n draws."""
        places_L = np.flatnonzero(self._live_P)
        own_N = self._live_P.reshape(self.nodes, self.slots).sum(1)
        others_N = len(places_L) - own_N
        wanted_N = np.minimum(n, rng.hypergeometric(others_N, self.arriving - others_N, self.size))
        chosen_NJ = np.full((self.nodes, n), -1)
        for column in range(n):
            highest_N = others_N - wanted_N + column
            draw_N = (rng.random(self.nodes) * (highest_N + 1)).astype(np.int64)
            draw_N = np.where((chosen_NJ == draw_N[:, None]).any(1), highest_N, draw_N)
            chosen_NJ[:, column] = np.where(column < wanted_N, draw_N, -1)
        before_N1 = (own_N.cumsum() - own_N)[:, None]  # a node's own stand together in places_L, and are stepped over
        index_NJ = chosen_NJ + np.where(chosen_NJ >= before_N1, own_N[:, None], 0)
        return np.where(chosen_NJ >= 0, np.append(places_L, -1)[index_NJ], -1)
