"""Packing: a group is one row, its prompt once and its completions behind it, so that nothing is computed twice.

A row is `prompt, completion 1, completion 2, ...`. By the attention mask each completion sees the prompt and itself,
and its positions count from the end of the prompt. So every log-probability is that of the completion alone after its
prompt. In a conversation what the environment says stands between the policy's turns; it is read and never trained.
What the prompts of several rows begin with is a prefix of its own, which all of these rows see
(`learn.logprobs.Prefix`).

Shape suffixes: R rows, S positions in a row, L positions in the prefix, T trained tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from shoal.policy.families import families
from shoal.policy.pictures import positions as positions_of


@dataclass(frozen=True)
class Trained:
    """One completion to train on."""

    token_ids: list[int]
    advantage: float
    weight: float
    """The weight of each of its tokens in the loss (`Average.weights`)."""
    offset: int
    """Where its tokens begin in the flat tensors of the whole update (old and reference log-probabilities)."""
    node: str = ""
    """Its maker."""
    from_peer: bool = False
    """Whether a peer made it."""
    observed: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Tokens that an environment says before some of `token_ids`, by their numbers. They are read, not trained."""

    @property
    def length(self) -> int:
        """Tokens, those of an environment included."""
        return len(self.token_ids) + sum(map(len, self.observed.values()))

    def whole(self) -> tuple[list[int], list[int]]:
        """All tokens, and the places of the trained ones among them."""
        ids: list[int] = []
        places = []
        for number, id in enumerate(self.token_ids):
            ids += self.observed.get(number, ())
            places.append(len(ids))
            ids.append(id)
        return ids, places


@dataclass(frozen=True)
class Row:
    """A prompt with some of its completions."""

    prompt_ids: list[int]
    sequences: tuple[Trained, ...]

    def __len__(self) -> int:
        """Tokens to compute: the last one of a completion predicts nothing."""
        return len(self.prompt_ids) + sum(s.length - 1 for s in self.sequences)


@dataclass(frozen=True)
class MicroBatch:
    """Rows as tensors, ready for one forward pass."""

    input_ids_RS: torch.Tensor
    positions_RS: torch.Tensor
    segments_RS: torch.Tensor
    """0 in the prompt, 1, 2, ... in its completions, -1 in the padding."""
    shared: int
    """L: the first tokens of every prompt, which are not in `input_ids`."""
    prompt: int
    """How many tokens each row begins with that are of its prompt."""
    rows_T: torch.Tensor
    columns_T: torch.Tensor
    """With `rows_T`, where the hidden state that predicts each trained token is."""
    targets_T: torch.Tensor
    advantages_T: torch.Tensor
    weights_T: torch.Tensor
    offsets_T: torch.Tensor
    sequences_T: torch.Tensor
    """The completion of each token: 0, 1, ... A completion is never split over batches."""

    def mask_RSN(self, window: int | None = None) -> torch.Tensor:
        """True where a position may see another one, first those of the prefix (N = L + S): earlier ones of its prompt
        and its own segment, within `window` tokens if the model's attention slides."""
        S, device = self.input_ids_RS.shape[1], self.segments_RS.device
        query, key = self.segments_RS[:, :, None], self.segments_RS[:, None, :]
        causal = torch.ones(S, S, dtype=torch.bool, device=device).tril()
        mask = torch.nn.functional.pad(causal & ((key == query) | (key == 0)), (self.shared, 0), value=True)
        if window is not None:
            prefix_RL = torch.arange(self.shared, device=device).expand(len(mask), -1)
            position_RN = torch.cat([prefix_RL, self.positions_RS], 1)
            mask &= self.positions_RS[:, :, None] - position_RN[:, None, :] < window
        return mask


@dataclass(frozen=True)
class Family:
    """Rows whose prompts share their first tokens."""

    rows: list[Row]
    shared: int = 0

    @property
    def prefix_ids(self) -> list[int]:
        return self.rows[0].prompt_ids[: self.shared]


def row_families(rows: Sequence[Row], shared: bool = True) -> list[Family]:
    """All rows, so that the fewest tokens are computed. `shared`: False: each row brings its whole prompt."""
    if not shared:
        return [Family([row]) for row in rows]
    found = families([row.prompt_ids for row in rows])
    return [Family([rows[number] for number in family.members], family.shared) for family in found]


def make_rows(prompt_ids: list[int], sequences: Sequence[Trained], token_budget: int) -> list[Row]:
    """The group as one row, or as several that repeat the prompt, of `token_budget` or `room_behind` tokens."""
    longest = len(prompt_ids) + room_behind(len(prompt_ids), token_budget)
    rows: list[Row] = []
    current: list[Trained] = []
    for sequence in sorted(sequences, key=lambda s: s.length):
        if current and len(Row(prompt_ids, (*current, sequence))) > longest:
            rows.append(Row(prompt_ids, tuple(current)))
            current = []
        current.append(sequence)
    return [*rows, Row(prompt_ids, tuple(current))] if current else rows


def room_behind(tokens: int, token_budget: int) -> int:
    """How many tokens may stand behind a prompt or prefix of so many `tokens`. Half of the budget at least: a long
    prompt is computed whole in any case, and a pass costs much beside its tokens."""
    return max(token_budget - tokens, token_budget // 2)


def micro_batches(
    rows: Sequence[Row], token_budget: int, device: torch.device, shared: int = 0
) -> Iterator[MicroBatch]:
    """Rows of similar length together: at most `token_budget` tokens (padding and the `shared` ones included) in each
    pass, but at least one row, and `room_behind` a long prefix. The longest rows come first: shorter ones then fit
    into the memory that these free."""
    room = room_behind(shared, token_budget)
    pending: list[Row] = []
    for row in sorted(rows, key=len, reverse=True):
        if pending and (len(pending[0]) - shared) * (len(pending) + 1) > room:
            yield tensors(pending, device, shared)
            pending = []
        pending.append(row)
    if pending:
        yield tensors(pending, device, shared)


def tensors(rows: Sequence[Row], device: torch.device, shared: int = 0) -> MicroBatch:
    """`rows`, padded to the longest of them, without the first `shared` tokens."""
    R, S = len(rows), max(map(len, rows)) - shared
    input_ids = torch.zeros(R, S, dtype=torch.long)
    positions = torch.zeros(R, S, dtype=torch.long)
    segments = torch.full((R, S), -1, dtype=torch.long)
    where_row: list[int] = []
    where_column: list[int] = []
    targets: list[int] = []
    offsets: list[int] = []
    for r, row in enumerate(rows):
        prompt_ids = row.prompt_ids[shared:]
        P = len(prompt_ids)
        input_ids[r, :P] = torch.tensor(prompt_ids)
        *prompt_positions, after = positions_of(row.prompt_ids)
        positions[r, :P] = torch.tensor(prompt_positions[shared:])
        segments[r, :P] = 0
        start = P
        for number, sequence in enumerate(row.sequences, 1):
            ids, places = sequence.whole()
            length = len(sequence.token_ids)
            end = start + len(ids) - 1
            input_ids[r, start:end] = torch.tensor(ids[:-1], dtype=torch.long)
            positions[r, start:end] = torch.arange(after, after + len(ids) - 1)
            segments[r, start:end] = number
            where_row += [r] * length
            where_column += [start + place - 1 if place else P - 1 for place in places]
            targets += sequence.token_ids
            offsets += range(sequence.offset, sequence.offset + length)
            start = end
    sequences = [sequence for row in rows for sequence in row.sequences]
    lengths = torch.tensor([len(sequence.token_ids) for sequence in sequences])
    sequences_T = torch.arange(len(sequences)).repeat_interleave(lengths)
    return MicroBatch(
        input_ids_RS=input_ids.to(device),
        positions_RS=positions.to(device),
        segments_RS=segments.to(device),
        shared=shared,
        prompt=min(len(row.prompt_ids) for row in rows) - shared,
        rows_T=torch.tensor(where_row, device=device),
        columns_T=torch.tensor(where_column, device=device),
        targets_T=torch.tensor(targets, device=device),
        advantages_T=torch.tensor([s.advantage for s in sequences], dtype=torch.float32)[sequences_T].to(device),
        weights_T=torch.tensor([s.weight for s in sequences], dtype=torch.float32)[sequences_T].to(device),
        offsets_T=torch.tensor(offsets, device=device),
        sequences_T=sequences_T.to(device),
    )
