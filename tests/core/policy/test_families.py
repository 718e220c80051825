"""Which prompts share a prefix."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.policy.families import PASS, Family, batches, families, kept_tokens


def test_the_longest_common_prefix_of_each_family_is_found() -> None:
    examples, other = list(range(100, 200)), list(range(300, 420))
    prompts = [[*examples, 1], [*other, 1, 2], [7, 8], [*examples, 2, 3], [*other, 5], [*examples, 9]]
    assert families(prompts) == [Family((0, 3, 5), 100), Family((1, 4), 120), Family((2,), 0)]


def test_what_would_save_less_than_a_pass_is_not_shared() -> None:
    prompts = [[*range(10), 50 + number] for number in range(4)]
    assert families(prompts, cost=30) == [Family((0, 1, 2, 3), 0)]
    assert families(prompts, cost=29) == [Family((0, 1, 2, 3), 10)]


def test_a_longer_prefix_of_fewer_counts_against_a_shorter_one_of_more() -> None:
    system, examples = list(range(40)), list(range(100, 400))
    prompts = [[*system, *examples, number] for number in range(3)] + [[*system, 500 + number] for number in range(3)]
    assert families(prompts) == [Family((0, 1, 2), 340), Family((3, 4, 5), 40)]


def test_each_prompt_keeps_a_token_of_its_own() -> None:
    same = list(range(100))
    assert families([same, same, same]) == [Family((0, 1, 2), 99)]
    assert families([same, [*same, 5]]) == [Family((0, 1), 99)]
    assert families([]) == []


prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), max_size=12)


@given(prompts, st.integers(0, 6))
def test_every_prompt_is_in_one_family_and_begins_as_it_says(given_: list[list[int]], cost: int) -> None:
    found = families(given_, cost)
    assert sorted(number for family in found for number in family.members) == list(range(len(given_)))
    for family in found:
        heads = {tuple(given_[number][: family.shared]) for number in family.members}
        assert len(heads) == 1
        assert all(len(given_[number]) > family.shared for number in family.members)
        assert not family.shared or family.shared * (len(family.members) - 1) > cost


@given(prompts, st.integers(1, 1000), st.integers(0, 50))
def test_batches_hold_every_prompt_once_and_keep_to_their_room(short: list[list[int]], room: int, answers: int) -> None:
    given_ = [[token for token in prompt for _ in range(40)] for prompt in short]
    found = list(batches(given_, room, answers))
    assert sorted(number for batch in found for number in batch) == list(range(len(given_)))
    for batch in found:
        tokens = kept_tokens([given_[number] for number in batch]) + answers * len(batch)
        # What is left of a family at either end of a batch may be too little to share.
        assert tokens <= room + 2 * PASS or len(batch) == 1


def test_shared_tokens_are_kept_once() -> None:
    assert kept_tokens([[*range(100), number] for number in range(5)]) == 105
    assert list(batches([[*range(100), number] for number in range(5)], 140, 10)) == [[0, 1, 2], [3, 4]]
