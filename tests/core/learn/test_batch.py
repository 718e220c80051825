"""Packing: what stands where, who sees whom, and how rows are cut to a budget."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.learn.batch import Row, Trained, make_rows, micro_batches

CPU = torch.device("cpu")


def trained(*lengths: int) -> list[Trained]:
    """Sequences of the given lengths, whose tokens say which sequence and place they are."""
    sequences, slot = [], 0
    for number, length in enumerate(lengths, 1):
        sequences.append(Trained([100 * number + t for t in range(length)], float(number), 0.5 * number, slot))
        slot += length
    return sequences


def test_a_row_is_the_prompt_and_its_completions_without_their_last_tokens() -> None:
    row = Row([7, 8, 9], tuple(trained(3, 1, 2)))
    (batch,) = micro_batches([row], 100, CPU)
    assert batch.input_ids_RS.tolist() == [[7, 8, 9, 100, 101, 300]]
    assert batch.positions_RS.tolist() == [[0, 1, 2, 3, 4, 3]]
    assert batch.segments_RS.tolist() == [[0, 0, 0, 1, 1, 3]]
    assert len(row) == 6


def test_every_trained_token_is_predicted_from_the_one_before_it() -> None:
    (batch,) = micro_batches([Row([7, 8, 9], tuple(trained(3, 1, 2)))], 100, CPU)
    before = batch.input_ids_RS[batch.rows_T, batch.columns_T].tolist()
    pairs = list(zip(before, batch.targets_T.tolist(), strict=True))
    assert pairs == [(9, 100), (100, 101), (101, 102), (9, 200), (9, 300), (300, 301)]
    assert batch.advantages_T.tolist() == [1, 1, 1, 2, 3, 3]
    assert batch.weights_T.tolist() == [0.5, 0.5, 0.5, 1, 1.5, 1.5]
    assert batch.offsets_T.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.sequences_T.tolist() == [0, 0, 0, 1, 2, 2]


def test_a_completion_sees_its_prompt_and_itself_and_no_other() -> None:
    (batch,) = micro_batches([Row([7, 8], tuple(trained(3, 3)))], 100, CPU)
    assert batch.mask_RSN()[0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 1],
    ]


def test_a_sliding_window_counts_distance_in_the_completion_not_in_the_row() -> None:
    (batch,) = micro_batches([Row([7, 8], tuple(trained(3, 3)))], 100, CPU)
    assert batch.mask_RSN(2)[0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 1, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ]


def test_padding_is_seen_by_no_token_and_sees_something() -> None:
    rows = [Row([1, 2, 3, 4], tuple(trained(3))), Row([5], tuple(trained(2)))]
    (batch,) = micro_batches(rows, 100, CPU)
    padding = batch.segments_RS == -1
    for mask in (batch.mask_RSN(), batch.mask_RSN(2)):
        assert mask.any(-1).all()  # a position that saw nothing would make NaNs
        for r in range(2):
            assert not mask[r][~padding[r]][:, padding[r]].any()


def test_a_group_over_the_budget_repeats_its_prompt() -> None:
    rows = make_rows([1, 2, 3], trained(4, 4, 4, 4), token_budget=9)
    assert [len(row) for row in rows] == [9, 9]
    assert all(row.prompt_ids == [1, 2, 3] for row in rows)


def test_a_sequence_longer_than_the_budget_stands_alone() -> None:
    rows = make_rows([1, 2, 3], trained(50, 2, 2), token_budget=8)
    assert sorted(len(row.sequences) for row in rows) == [1, 2]


def test_a_long_prompt_is_not_repeated_for_each_answer() -> None:
    """The prompt is computed whole in any case: behind it there is room for half of the budget."""
    assert [len(row.sequences) for row in make_rows([0] * 100, trained(5, 5, 5, 5), token_budget=40)] == [4]
    rows = [Row([0] * 100, tuple(trained(5))) for _ in range(4)]
    (batch,) = micro_batches(rows, 40, CPU, shared=99)
    assert batch.input_ids_RS.shape == (4, 5)


def test_nothing_to_train_is_no_row() -> None:
    assert make_rows([1, 2, 3], [], 100) == []
    assert list(micro_batches([], 100, CPU)) == []


lengths = st.lists(st.integers(1, 20), min_size=1, max_size=10)


@given(st.lists(st.tuples(st.integers(1, 15), lengths), max_size=5), st.integers(1, 80))
def test_every_token_is_trained_once_and_passes_keep_to_the_budget(
    groups: list[tuple[int, list[int]]], budget: int
) -> None:
    rows: list[Row] = []
    slot = 0
    ends = []
    for prompt_length, group in groups:
        sequences = []
        for length in group:
            sequences.append(Trained(list(range(slot, slot + length)), 0.0, 0.0, slot))
            slot += length
            ends.append(slot)
        rows += make_rows([0] * prompt_length, sequences, budget)
    for row in rows:
        assert len(row) <= max(budget, len(row.prompt_ids) + budget // 2) or len(row.sequences) == 1
    seen = []
    for batch in micro_batches(rows, budget, CPU):
        assert batch.input_ids_RS.numel() <= budget or len(batch.input_ids_RS) == 1
        assert torch.equal(batch.targets_T, batch.offsets_T)
        seen += batch.offsets_T.tolist()
        for number in set(batch.sequences_T.tolist()):  # each is here with its first token, its last, and no other's
            slots = batch.offsets_T[batch.sequences_T == number].tolist()
            assert (slots[0] in {0, *ends}, slots[-1] + 1) == (True, min(end for end in ends if end > slots[0]))
    assert sorted(seen) == list(range(slot))
