"""Makes the publishable form of archives: each is checked, its prompts and rewards are made again, and a card says what
they have.

    python scripts/release_archive.py release archives/alike archives/specialists archives/able
    python scripts/open_archive.py release          # as programs open it that know nothing of shoal

What does not hold is left out. Every folder below is an archive of its own: `shoal verify release/alike`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from shoal.errors import UserError
from shoal.identity.keys import name_of
from shoal_extras.archive.contents import Stats, signed_rows
from shoal_extras.archive.format import COMPLETIONS, GROUPS, LICENCE, ROW_GROUP, Row, begin, chunks, write_part
from shoal_extras.archive.merge import rewrite
from shoal_extras.archive.reader import Reader
from shoal_extras.archive.verify import start_of, verify, weigh
from shoal_extras.export.card import escaped

CARD = """---
license: {licence}
tags: [shoal, reinforcement-learning, rollouts]
configs:
{configs}
---

# What small language models answered while they learned from each other

{groups:,} groups of answers, {completions:,} answers in all, that nodes of [shoal](https://github.com/shoal-rl/shoal)
signed in swarms of eight. Each folder is an archive (format 1, docs/guides/archive.md): `groups` has the signed
envelopes, `completions` a row for each answer. Anybody can make the questions again and compute the rewards again:
`pip install shoal && shoal verify {first}`. The clocks of these nodes were set: a round is a minute.

Answers are under CC0-1.0. The questions are made by reasoning-gym (Apache-2.0) from task, seed and index; they are not
of any data set. Keys are pseudonyms. A model `base:NAME` was made for the study (studies/commons.toml) and learned on.

| archive | task | model | answers | right |
|---|---|---|---|---|
{rates}

| archive | key | rollouts |
|---|---|---|
{keys}
"""


def again(archive: Path, reader: Reader) -> Iterator[Row]:
    """The rows of an archive with questions and rewards made here."""
    envelopes = [row.envelope for row, _ in signed_rows(archive)]
    for at in range(0, len(envelopes), ROW_GROUP):
        some = envelopes[at : at + ROW_GROUP]
        for envelope, found in zip(some, weigh(reader, some), strict=True):
            yield Row.made(envelope, found.question, found.rewards)


def release(archive: Path, to: Path) -> Stats:
    """Writes one archive. Raises `UserError` if what was written does not hold."""
    with Reader(start_of(None)) as reader, tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "made"
        begin(made)
        rows = sorted(again(archive, reader), key=lambda row: (row.opened().time, row.id))
        for chunk in chunks(iter(rows)):
            write_part(made, chunk)
        found = verify(made, start_of(None))
        count = rewrite([made], to, lambda row, one: one.id not in found.bad)
    if wrong := verify(to, start_of(None)).wrong:
        raise UserError(f"{to} does not hold: {dict(wrong)}")
    stats = Stats()
    for row, said in signed_rows(to):
        stats.add(row, said)
    print(f"{to}: {count['kept']} groups; left out: {dict(found.wrong)}", flush=True)
    return stats


def card(made: dict[str, Stats]) -> str:
    """The card of all archives."""
    configs = [
        f"- config_name: {name}-{table}\n  data_files: {name}/{table}/*.parquet"
        + "\n  default: true" * (number == 0 and table == COMPLETIONS)
        for number, name in enumerate(made)
        for table in (COMPLETIONS, GROUPS)
    ]
    rates = [
        f"| {name} | {escaped(task)} | {escaped(model)} | {every:,} | {stats.rate(task, model):.3f} |"
        for name, stats in made.items()
        for (task, model), every in sorted(stats.scored.items())
    ]
    keys = [
        f"| {name} | {name_of(bytes.fromhex(key))} `{key}` | {rollouts:,} |"
        for name, stats in made.items()
        for key, rollouts in sorted(stats.makers.items())
    ]
    return CARD.format(
        licence=LICENCE,
        configs="\n".join(configs),
        groups=sum(stats.groups for stats in made.values()),
        completions=sum(stats.completions for stats in made.values()),
        first=next(iter(made)),
        rates="\n".join(rates),
        keys="\n".join(keys),
    )


if __name__ == "__main__":
    out, *archives = map(Path, sys.argv[1:])
    try:
        stats = {archive.name: release(archive, out / archive.name) for archive in archives}
    except UserError as error:
        sys.exit(str(error))
    (out / "README.md").write_text(card(stats), encoding="utf-8")
