"""The sampler of the paper: rollouts that carry a gradient, each as likely as the other."""

from __future__ import annotations

from collections import Counter

from fakes import scored
from hypothesis import given
from hypothesis import strategies as st

from shoal.sampling import UniformSampler

SAMPLER = UniformSampler()
LIVE, DEAD = (1.0, 0.0), (1.0, 1.0)


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 15), st.integers(0, 2**63 - 1))
def test_live_ones_alone_and_as_many_as_there_are(lives: list[bool], n: int, seed: int) -> None:
    candidates = [scored(LIVE if live else DEAD, index) for index, live in enumerate(lives)]
    chosen = SAMPLER.sample(candidates, n, seed)
    assert len(chosen) == min(n, sum(lives))
    assert all(entry.live for entry in chosen)
    assert len({entry.question.id.index for entry in chosen}) == len(chosen)
    assert chosen == SAMPLER.sample(candidates, n, seed)


def test_all_are_equally_likely_and_seeds_differ() -> None:
    candidates = [scored(LIVE if index % 2 else DEAD, index) for index in range(20)]
    draws = [SAMPLER.sample(candidates, 3, seed) for seed in range(4000)]
    counts = Counter(entry.question.id.index for draw in draws for entry in draw)
    assert sorted(counts) == list(range(1, 20, 2))
    assert all(abs(count - 1200) < 150 for count in counts.values())  # five standard deviations
    firsts = Counter(draw[0].question.id.index for draw in draws)
    assert all(abs(count - 400) < 100 for count in firsts.values())


def test_dead_ones_are_not_taken_where_live_ones_are_few() -> None:
    assert SAMPLER.sample([scored(DEAD, 1), scored(LIVE, 2)], 2, 0) == [scored(LIVE, 2)]
    assert SAMPLER.sample([scored(DEAD, 1)], 2, 0) == []
    assert SAMPLER.sample([], 2, 0) == []
