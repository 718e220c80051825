"""Before and after: what a model answered to the same held-out questions in each evaluation.

    kept = chosen({"gcd": [...], "lcm": [...]})           # all questions, of each task alike where they are many
    rows = transcript_rows("node-1", evaluation, kept, tasks.answer)    # for `transcripts.parquet`
    for pair in pairs(folder, "node-1"):
        print(pair.question, pair.before.completion, pair.after.completion)

The answers are those of the evaluation: nothing is asked twice. Which questions are kept does not depend on how they
are answered. Texts are a model's and may come from a stranger's folder: show them as plain characters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.evaluation.pass_at_k import Evaluation
from shoal.rollout import QuestionId
from shoal.runs.tables import LATER, TRANSCRIPT_SCHEMA, TRANSCRIPTS, answer_columns, records, turns_of

ALL = 256
"""Questions that are kept, at most."""
CONVERSATION = "conversation"
NEEDED = [name for name in TRANSCRIPT_SCHEMA.names if name not in LATER]
LONGEST = 1_000_000
"""Characters of a text that are read."""

Place = tuple[str, int]
"""A task, and which of its held-out questions."""


@dataclass(frozen=True)
class Answer:
    """One answer of one evaluation."""

    round: int
    completion: str
    reward: float
    conversation: tuple[tuple[str, str], ...] = ()
    """The turns, each with what an environment answered."""

    @property
    def right(self) -> bool:
        return self.reward >= 1


@dataclass(frozen=True)
class Pair:
    """A question as it was answered in the first evaluation and in the last."""

    task: str
    question: str
    before: Answer
    after: Answer


def chosen(held_out: Mapping[str, Sequence[Any]]) -> list[Place]:
    """Which questions are kept: the first of each task, then the second of each, and so on."""
    places = [(task, at) for at in range(ALL) for task, questions in held_out.items() if at < len(questions)]
    return sorted(places[:ALL], key=lambda place: (list(held_out).index(place[0]), place[1]))


def transcript_rows(
    node: str, evaluation: Evaluation, kept: Sequence[Place], right: Callable[[QuestionId], str | None]
) -> list[dict[str, Any]]:
    """A row for each kept question that was answered: the first answer, and the `right` one where it is known."""
    rows = []
    for task, at in kept:
        asked = evaluation.asked[task][at]
        if asked.answers:
            id = asked.question.id
            row = answer_columns(node, asked.question, asked.answers[0], asked.rewards[0], right(id))
            rows.append(row | {"task": task, "identity": f"{id.version} {id.seed} {id.index}"})
    return rows


def pairs(run: Path, node: str) -> list[Pair]:
    """What `node` answered in the first and in the last evaluation in the folder `run`. Empty before there are two.
    Raises `UserError` for files that are no transcripts."""
    ends: dict[int, dict[tuple[str, str], Answer]] = {}
    for row in records(run, TRANSCRIPTS, [*NEEDED, CONVERSATION]):
        if row["node"] != node or any(row[name] is None for name in NEEDED):
            continue
        kept = ends.setdefault(row["round"], {})
        for between in sorted(ends)[1:-1]:
            del ends[between]
        if len(kept) < ALL:
            turns = tuple(turns_of(row[CONVERSATION]) or ())
            answer = Answer(row["round"], row["completion"][:LONGEST], row["reward"], turns)
            kept[row["task"][:LONGEST], row["prompt"][:LONGEST]] = answer
    if len(ends) < 2:
        return []
    first, last = (ends[round] for round in sorted(ends))
    return [Pair(*key, first[key], last[key]) for key in first if key in last]
