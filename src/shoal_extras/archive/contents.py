"""What an archive has (`stats`), and its rows in forms that TRL's trainers take (`export`)."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import UserError
from shoal.identity.keys import name_of
from shoal.wire.rollouts import Statement
from shoal_extras.archive.format import CHAT, LATEST, LICENCE, Row, parts_of
from shoal_extras.archive.reader import Reader, withdrawn
from shoal_extras.export.card import escaped
from shoal_extras.export.writing import check_folder, keep, scratch_beside, write_errors

SHOWN: Final = 20  # makers, and tasks by model, that are shown
PAIRS: Final = 4  # of right and wrong answers to one question
FORMS: Final = {
    "sft": pa.schema([("prompt", CHAT), ("completion", CHAT)]),
    "preference": pa.schema([("prompt", CHAT), ("chosen", CHAT), ("rejected", CHAT)]),
    "grpo": pa.schema([("prompt", CHAT), ("answers", pa.list_(pa.string())), ("rewards", pa.list_(pa.float64()))]),
}
"""Columns of each form. sft: right answers, for SFTTrainer. preference: pairs, for DPOTrainer. grpo: whole groups with
their rewards, for GRPOTrainer with the `rollout_func` and the reward function of docs/guides/archive.md."""


class Stats:
    """Who, what, how much."""

    def __init__(self) -> None:
        self.groups = self.completions = self.bytes = 0
        self.makers, self.days = Counter[str](), Counter[str]()
        """Groups by key, and by day (UTC)."""
        self.right, self.scored = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        """Right answers, and all whose rewards are known, by task and model: the archiver's claim."""

    def add(self, row: Row, said: Statement) -> None:
        self.groups, self.completions = self.groups + 1, self.completions + len(said.rollout.completions)
        self.bytes += len(row.envelope)
        self.makers[said.id] += 1
        self.days[f"{datetime.fromtimestamp(min(said.time, LATEST), UTC):%Y-%m-%d}"] += 1
        by = said.rollout.question.task, said.model or f"unknown {said.kind}"
        self.right[by] += sum(reward >= 1 for reward in row.rewards or ())
        self.scored[by] += len(row.rewards or ())

    def rate(self, task: str, model: str) -> float:
        """The share of right answers; 0 where none is scored."""
        return self.right[task, model] / max(1, self.scored[task, model])

    def as_object(self) -> dict[str, Any]:
        """As plain data."""
        rates = [
            {"task": task, "model": model, "completions": every, "pass_rate": self.rate(task, model) if every else None}
            for (task, model), every in sorted(self.scored.items())
        ]
        sums = {"groups": self.groups, "completions": self.completions, "bytes": self.bytes}
        return sums | {"makers": self.makers, "days": dict(sorted(self.days.items())), "rates": rates}


def signed_rows(archive: Path) -> Iterator[tuple[Row, Statement]]:
    """The rows that their makers signed and did not withdraw, and what they say. Raises `UserError`."""
    gone = withdrawn([archive])
    with Reader() as reader:
        for name in parts_of(archive):
            for row, found in reader.pairs(archive, name):
                if not found.reason and found.time > gone.get((found.key, found.swarm), (-1.0, b""))[0]:
                    yield row, row.opened()


def export(archive: Path, form: str, to: Path) -> int:
    """Writes a data set of this form with its card into a new folder; how many rows. Raises `UserError`."""
    check_folder(to)
    stats, seen = Stats(), set[int]()
    with write_errors(to), scratch_beside(to) as scratch:
        (scratch / "data").mkdir()
        with pq.ParquetWriter(scratch / "data" / "train.parquet", FORMS[form], compression="zstd") as writer:
            for row, said in signed_rows(archive):
                if row.messages and row.rewards and len(row.rewards) == len(said.rollout.completions):
                    stats.add(row, said)
                    prompt = [{"role": role, "content": content} for role, content in row.messages]
                    made = {str(one): one for one in ({"prompt": prompt} | each for each in _made(form, row, said))}
                    rows = [one for text, one in made.items() if hash(text) not in seen]
                    seen.update(map(hash, made))
                    writer.write_table(pa.Table.from_pylist(rows, FORMS[form]))
        if not seen:
            raise UserError(f"{archive} has nothing for the form '{form}'")
        (scratch / "README.md").write_text(card(stats, form, len(seen)), encoding="utf-8")
        keep(scratch)
        scratch.replace(to)
    return len(seen)


def _made(form: str, row: Row, said: Statement) -> Iterator[dict[str, Any]]:
    """The rows of a group in this form, without the prompt."""
    graded = list(zip(row.rewards or (), (one.text for one in said.rollout.completions), strict=True))
    right, wrong = (
        [[{"role": "assistant", "content": text}] for reward, text in graded if (reward >= 1) is good]
        for good in (True, False)
    )
    if form == "grpo":
        yield {"answers": [text for _, text in graded], "rewards": list(row.rewards or ())}
    elif form == "sft":
        yield from ({"completion": one} for one in right)
    else:
        yield from ({"chosen": a, "rejected": b} for a, b in list(zip(right, wrong, strict=False))[:PAIRS])


def card(stats: Stats, form: str, count: int) -> str:
    """The card of an exported data set. What strangers said is shown as plain characters."""
    rates = [
        f"| {escaped(task)} | {escaped(model)} | {every:,} | {stats.rate(task, model):.3f} |"
        for (task, model), every in sorted(stats.scored.most_common(SHOWN))
    ]
    makers = [f"| {name_of(bytes.fromhex(key))} | `{key}` | {n:,} |" for key, n in stats.makers.most_common(SHOWN)]
    lines = [
        f"---\nlicense: {LICENCE}\ntags: [shoal, trl]\n---\n\n# From an archive of a shoal swarm\n",
        f"{count:,} rows in the form `{form}`, from {stats.groups:,} rollouts that nodes signed from {min(stats.days)} "
        f"to {max(stats.days)}. Answers are under CC0-1.0; questions of a data set stay under its licence. Rewards are "
        "the archiver's claim: `shoal verify` computes those of the archive again.\n",
        *("| task | model | answers | right |", "|---|---|---:|---:|", *rates, ""),
        *("| maker | key | rollouts |", "|---|---|---:|", *makers),
    ]
    return "\n".join(lines) + "\n"
