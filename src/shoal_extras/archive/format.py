"""The format of an archive (docs/guides/archive.md): two tables in Parquet, which open without shoal.

    ARCHIVE/README.md                     the card: licence, and the configurations `groups` and `completions`
    ARCHIVE/groups/NAME.parquet           a row for each signed envelope
    ARCHIVE/completions/NAME.parquet      a row for each completion of the same groups, for reading
    ARCHIVE/withdrawals/HASH.msgpack      signed: a key withdraws what it shared

The envelope is the truth. All columns follow from it, but for `prompt`, `messages` and `rewards`: they are the
archiver's claim, which `shoal verify` makes again.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import UserError
from shoal.identity.keys import name_of
from shoal.rollout import Question
from shoal.runs.disk import disk_errors, write_atomically
from shoal.wire.rollouts import Statement, open_envelope

LICENCE: Final = "cc0-1.0"
GROUPS, COMPLETIONS = "groups", "completions"
PART_BYTES, PART_ROWS, ROW_GROUP = 8 << 20, 8192, 512
"""Bytes of envelopes and rows of a file at most, and rows of its row groups."""
MAX_PARTS: Final = 100_000
LATEST: Final = 2**37  # seconds since 1970 of a row, at most: later times have no date in some programs
NAME: Final = re.compile(r"\d{8}T\d{6}-[0-9a-f]{16}\.parquet")
TEXT, WHOLE = pa.string(), pa.int64()
MAKER: Final = [
    *((name, TEXT) for name in ("task", "version", "config")),
    *((name, WHOLE) for name in ("seed", "index")),
    *((name, TEXT) for name in ("question_hash", "key", "node", "kind", "model", "swarm")),
    *((name, WHOLE) for name in ("round", "slot")),
    ("time", pa.timestamp("ms", tz="UTC")),
]
"""Columns of both tables: which question it is, and who answered when."""
CHAT = pa.list_(pa.struct([("role", TEXT), ("content", TEXT)]))
CLAIMS: Final = [("prompt", TEXT), ("messages", CHAT), ("rewards", pa.list_(pa.float64()))]
BYTES: Final = [("signature", pa.binary()), ("envelope", pa.binary())]
ANSWER: Final = [("prompt", TEXT), ("completion", TEXT), ("reward", pa.float64()), ("finish_reason", TEXT)]
SCHEMAS: Final = {
    GROUPS: pa.schema([("group_id", TEXT), *CLAIMS, *MAKER, *BYTES], {"shoal_archive": "1"}),
    COMPLETIONS: pa.schema([*ANSWER, ("group_id", TEXT), ("number", WHOLE), *MAKER], {"shoal_archive": "1"}),
}
CARD: Final = f"""---
license: {LICENCE}
tags: [shoal, reinforcement-learning, rollouts]
configs:
- config_name: completions
  data_files: completions/*.parquet
  default: true
- config_name: groups
  data_files: groups/*.parquet
---

# An archive of a shoal swarm

What language models answered, signed by the nodes that made them (format 1). `completions` has a row for each answer,
`groups` the signed envelopes, which prove them. Prompts and rewards are the archiver's claim: `shoal verify .` makes
the questions again and computes the rewards again.

Answers are under CC0-1.0; questions of a data set stay under its licence. Keys are pseudonyms.
"""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A group of an archive: the signed bytes, and what the archiver says of them, where it could tell."""

    envelope: bytes
    prompt: str | None = None
    messages: tuple[tuple[str, str], ...] | None = None
    rewards: tuple[float, ...] | None = None

    @property
    def id(self) -> str:
        """The name of the group: a hash of its envelope."""
        return hashlib.blake2b(self.envelope, digest_size=16).hexdigest()

    def opened(self) -> Statement:
        """What its maker signed. Raises `Malformed` or `NewerVersion`. The signature is not checked."""
        return open_envelope(self.envelope)[0]

    @classmethod
    def made(cls, envelope: bytes, question: Question | None, rewards: Sequence[float]) -> Self:
        """The row of an envelope whose question and rewards were made here; None: they are not known."""
        if question is None:
            return cls(envelope)
        return cls(envelope, question.shown, tuple((m.role, m.content) for m in question.chat), tuple(rewards))

    def wrong(self, question: Question, rewards: Sequence[float]) -> list[str]:
        """Which of its claims are not what was made again."""
        if self.rewards is None:
            return []
        made = self.made(self.envelope, question, rewards)
        near = [abs(one - two) < 1e-6 for one, two in zip(self.rewards, rewards, strict=False)]
        found = ["prompt"] * ((self.prompt, self.messages) != (made.prompt, made.messages))
        return found + ["reward"] * (len(self.rewards) != len(rewards) or not all(near))


def tables(rows: Sequence[Row]) -> dict[str, pa.Table]:
    """Both tables of these rows. Raises `Malformed` or `NewerVersion`."""
    groups, answers, places = list[tuple[Any, ...]](), list[tuple[Any, ...]](), list[int]()
    for place, row in enumerate(rows):
        said, envelope = open_envelope(row.envelope)
        rollout = said.rollout
        chat = row.messages and [{"role": role, "content": content} for role, content in row.messages]
        who = rollout.question_hash, said.id, name_of(said.key), said.kind, said.model, said.swarm
        when = rollout.round, rollout.slot, int(min(said.time, LATEST) * 1000)
        maker = *msgspec.structs.astuple(rollout.question), *who, *when
        groups.append((row.id, row.prompt, chat, row.rewards, *maker, envelope.signature, row.envelope))
        for number, one in enumerate(rollout.completions):
            text = one.text if len(one.parts) == 1 else "\n".join(one.turns)
            reward = row.rewards[number] if row.rewards and number < len(row.rewards) else None
            answers.append((text, reward, one.finish_reason.value, number))
            places.append(place)
    made = _table(groups, SCHEMAS[GROUPS])
    own = [SCHEMAS[COMPLETIONS].field(name) for name in ("completion", "reward", "finish_reason", "number")]
    completions = _table(answers, pa.schema(own))
    others = made.take(pa.array(places, WHOLE))
    columns = [
        (completions if name in completions.schema.names else others)[name] for name in SCHEMAS[COMPLETIONS].names
    ]
    return {GROUPS: made, COMPLETIONS: pa.Table.from_arrays(columns, schema=SCHEMAS[COMPLETIONS])}


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def write_part(archive: Path, rows: Sequence[Row]) -> str:
    """Writes rows, in the order of (time, id), as one file of each table; its name. What `groups` has is complete: its
    file comes last. Raises `UserError`."""
    said = hashlib.blake2b(msgspec.msgpack.encode(rows), digest_size=8).hexdigest()
    name = f"{datetime.fromtimestamp(min(rows[0].opened().time, LATEST), UTC):%Y%m%dT%H%M%S}-{said}.parquet"
    made = [tables(rows[at : at + ROW_GROUP]) for at in range(0, len(rows), ROW_GROUP)]
    for table in (COMPLETIONS, GROUPS):
        buffer = pa.BufferOutputStream()
        with pq.ParquetWriter(buffer, SCHEMAS[table], compression="zstd") as writer:
            for both in made:
                writer.write_table(both[table], row_group_size=1 << 20)
        with disk_errors(archive):
            (archive / table).mkdir(parents=True, exist_ok=True)
        write_atomically(archive / table / name, buffer.getvalue().to_pybytes())
    return name


def parts_of(archive: Path) -> list[str]:
    """The names of the files of both tables, which sort by time. Links, and what is not named as agreed, are left out.
    Raises `UserError` for what is no archive."""
    folder = archive / GROUPS
    try:
        if archive.is_symlink() or folder.is_symlink() or not folder.is_dir():
            raise UserError(f"{archive} is no archive: it has no folder {GROUPS!r}")
        paths = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
        found = sorted(path.name for path in paths if path.is_file() and not path.is_symlink())
    except OSError as error:
        raise UserError(f"cannot read {archive}: {error.strerror or error}") from error
    if len(found) > MAX_PARTS:
        raise UserError(f"{archive} has {len(found):,} files, of at most {MAX_PARTS:,}")
    return found


def chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Rows in the pieces that are files. The pieces depend on the rows alone."""
    chunk, size = list[Row](), 0
    for row in rows:
        if chunk and (size + len(row.envelope) > PART_BYTES or len(chunk) == PART_ROWS):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += len(row.envelope)
    if chunk:
        yield chunk


def begin(archive: Path) -> None:
    """Makes the folders and the card of an archive. Raises `UserError`."""
    with disk_errors(archive):
        for table in SCHEMAS:
            (archive / table).mkdir(parents=True, exist_ok=True)
    write_atomically(archive / "README.md", CARD.encode())
