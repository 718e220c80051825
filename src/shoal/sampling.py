"""Which of other nodes' rollouts a node learns from."""

from __future__ import annotations

import random
from collections.abc import Sequence

from shoal.rollout import Scored


class UniformSampler:
    """The paper's sampler (arXiv 2509.08721, section 5): rollouts without advantage are dropped, the rest are equal."""

    def sample(self, candidates: Sequence[Scored], n: int, seed: int) -> list[Scored]:
        rng = random.Random(seed)
        live = [s for s in candidates if s.live and (s.weight >= 1 or rng.random() < s.weight)]
        return rng.sample(live, min(n, len(live)))
