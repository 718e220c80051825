"""The process that reads files of archives and scores strangers' answers, so that they harm nothing else.

It has limits of memory and of time (`GuardedProcess`), answers one request at a time, and makes no file.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.admission.limits import AdmissionLimits
from shoal.child import limit
from shoal.config.tasks import TasksConfig
from shoal.identity.keys import name_of
from shoal.rollout import MAX_TURNS, FinishReason, Question, hash_of, seed_of
from shoal.sandbox import guard
from shoal.sandbox.pipes import Candidate, Handler, Verdict, serve
from shoal.sandbox.verifier import MAX_TEXT
from shoal.sandbox.worker import judged
from shoal.tasks.draw import Tasks
from shoal.untrusted import open_regular, printable
from shoal.wire.rollouts import Malformed, NewerVersion, Statement, check_signature, open_envelope
from shoal_extras.archive.format import COMPLETIONS, GROUPS, SCHEMAS, Row, tables

MEMORY = 1 << 29  # bytes that reading a file may take beyond what pyarrow reserves
MAX_PART, FOOTER, MOST_GROUPS, MOST_ROWS, MOST_BYTES = 64 << 20, 1 << 20, 1024, 1 << 20, 64 << 20
"""Bounds of a file, its footer and its row groups; rows and bytes of one row group."""
STORED = ("envelope", "prompt", "messages", "rewards")
SLOTS = AdmissionLimits.max_slots
LONG = 32  # words from which a completion is compared with others that are like it
SKETCH = 8  # hashes that stand for a long text


class Start(msgspec.Struct, frozen=True):
    """What the process scores by, and what a private swarm signs with its messages."""

    tasks: dict[str, Any] | None = None
    context: bytes = b""


class Read(msgspec.Struct, frozen=True, tag=True):
    """The rows of a row group of `groups`; -1: only how many there are. `check`: 0: as they are; 1: and who signed
    them; 2: and all that follows from the envelopes, in both tables."""

    archive: str
    name: str
    number: int
    check: int = 0


class Weigh(msgspec.Struct, frozen=True, tag=True):
    """What follows from these envelopes?"""

    envelopes: list[bytes]


class Found(msgspec.Struct, frozen=True, array_like=True):
    """What is true of an envelope."""

    reason: str = ""  # the first check that fails; empty: it holds
    installed: bool = True  # whether its task is one of ours; if not, question and rewards are not checked
    id: str = ""
    key: bytes = b""
    time: float = 0.0
    swarm: str = ""
    place: int = 0  # a hash of key, swarm, round and slot
    texts: str = ""  # a hash of the question and the completions: the same for copies
    sketches: list[list[int]] = []  # of long completions: what copies with small changes have in common
    question: Question | None = None
    rewards: tuple[float, ...] = ()
    not_kept: bool = False
    wrong: list[str] = []  # the archiver's claims that are not what was made again


class Rows(msgspec.Struct, frozen=True):
    """The answer: rows, what is true of them, whether the columns of both tables follow from the envelopes; how many
    row groups the file has; or why it cannot be read."""

    rows: list[Row] = []
    found: list[Found] = []
    groups: int = 0
    columns: bool = True
    error: str = ""


def prepare(start: bytes) -> Handler:
    """Answers requests."""
    given = msgspec.msgpack.decode(start, type=Start)
    tasks = None
    if given.tasks is not None:
        tasks = Tasks(TasksConfig.model_validate(given.tasks))
        guard.install()
    with patch.object(sys, "meta_path", []):  # or pyarrow imports pandas, which takes a second
        pa.array([pa.allocate_buffer(1).size])  # now it reserves a gigabyte of addresses, beyond the limit
    limit(MEMORY)
    requests: msgspec.msgpack.Decoder[Read | Weigh] = msgspec.msgpack.Decoder(Read | Weigh)

    def handle(data: bytes) -> Iterator[Rows]:
        request = requests.decode(data)
        try:
            if isinstance(request, Weigh):
                yield Rows(found=[examine(one, tasks, given.context) for one in request.envelopes])
            else:
                yield _read(request, tasks, given.context)
        except (OSError, ValueError, TypeError, KeyError, MemoryError, pa.ArrowException) as error:
            yield Rows(error=printable(str(error).partition("\n")[0], 200) or type(error).__name__)

    return handle


def _open(path: Path) -> pq.ParquetFile:
    """A file whose footer is within the bounds."""
    with open_regular(path, follow_links=False) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(-8, os.SEEK_END)
        if size > MAX_PART or int.from_bytes(file.read(4), "little") > FOOTER:
            raise ValueError(f"it has {size:,} bytes, of at most {MAX_PART:,}, or a footer that is too large")
    found = pq.ParquetFile(path)
    if found.num_row_groups > MOST_GROUPS:
        raise ValueError(f"it has {found.num_row_groups:,} row groups, of at most {MOST_GROUPS:,}")
    return found


def _table(folder: Path, name: str, request: Read) -> pa.Table:
    """One row group within the bounds. A file can lie about its size, so memory is limited as well."""
    found, number = _open(folder / name / request.name), request.number
    if not found.schema_arrow.equals(SCHEMAS[name]):
        raise ValueError(f"its columns are not those of `{name}`")
    about = found.metadata.row_group(number)
    size = sum(abs(about.column(at).total_uncompressed_size) for at in range(about.num_columns))
    if not 0 <= about.num_rows <= MOST_ROWS or size > MOST_BYTES:
        raise ValueError(f"a row group of {about.num_rows:,} rows and {size:,} bytes")
    table = found.read_row_group(number, use_threads=False)
    if table.nbytes > MOST_BYTES:  # a long text that is stored once can stand in many rows
        raise ValueError(f"a row group of {table.nbytes:,} bytes, of at most {MOST_BYTES:,}")
    return table


def _read(request: Read, tasks: Tasks | None, context: bytes) -> Rows:
    folder = Path(request.archive)
    if request.number < 0:
        return Rows(groups=_open(folder / GROUPS / request.name).num_row_groups)
    table = _table(folder, GROUPS, request)
    rows = []
    for envelope, *said in zip(*(table[name].to_pylist() for name in STORED), strict=True):
        prompt, chat, rewards = said
        told = chat and tuple((m["role"] or "", m["content"] or "") for m in chat)
        rows.append(Row(envelope or b"", prompt, told, rewards and tuple(one or 0.0 for one in rewards)))
    found = [examine(row.envelope, tasks, context) for row in rows] if request.check else []
    columns = True
    if request.check > 1:
        try:
            made = tables(rows)
            stored = {GROUPS: table, COMPLETIONS: _table(folder, COMPLETIONS, request)}
            columns = all(made[name].equals(stored[name]) for name in stored)
        except (Malformed, NewerVersion, OSError, ValueError, pa.ArrowException):
            columns = False
        found = [stripped(row, one) for row, one in zip(rows, found, strict=True)]
    return Rows(rows if request.check < 2 else [], found, columns=columns)


def stripped(row: Row, found: Found) -> Found:
    """What was found, with the claims of `row` that are wrong in place of what was made again."""
    wrong = row.wrong(found.question, found.rewards) if found.question else []
    return msgspec.structs.replace(found, wrong=wrong, question=None, rewards=())


def examine(data: bytes, tasks: Tasks | None, context: bytes) -> Found:
    """What is true of an envelope. Without `tasks` only who signed it, and whether its maker kept the rules."""
    id = hashlib.blake2b(data, digest_size=16).hexdigest()
    try:
        said, envelope = open_envelope(data)
    except (Malformed, NewerVersion) as error:
        return Found("version" if isinstance(error, NewerVersion) else "malformed", id=id)
    if not check_signature(envelope, said, context):
        return Found("signature", id=id)
    rollout = said.rollout
    place = seed_of(said.id, said.swarm, rollout.round, rollout.slot)
    texts = sorted(one.text for one in rollout.completions)
    base = Found(_rules(said, texts), True, id, said.key, said.time, said.swarm, place, not_kept=said.not_kept)
    change = partial(msgspec.structs.replace, base)
    if base.reason or tasks is None:
        return base
    if (rollout.question.task, rollout.question.version, rollout.question.config) not in tasks.identities:
        return change(installed=False)
    answers = tuple(one.answer for one in rollout.completions)
    cut = tuple(one.finish_reason == FinishReason.length for one in rollout.completions)
    drawn = said.swarm, said.id, rollout.round
    *_, verdict = judged(tasks, Candidate(rollout.question, rollout.question_hash, drawn, rollout.slot, answers, cut))
    assert isinstance(verdict, Verdict)
    if verdict.reason:
        undecided = verdict.reason == "no verdict"
        return change(reason="" if undecided else verdict.reason, installed=not undecided)
    copies = hash_of((rollout.question_hash, texts, said.id if len(texts) == 1 else ""))  # as in admission
    sketches = [sketch for text in set(texts) if (sketch := _sketch(text, rollout.question_hash))]
    return change(texts=copies, sketches=sketches, question=verdict.question, rewards=verdict.rewards)


def _rules(said: Statement, texts: Sequence[str]) -> str:
    """Which rule of every swarm a rollout breaks; empty if none."""
    rollout = said.rollout
    if rollout.node != name_of(said.key):
        return "name"
    if not (0 <= rollout.slot < SLOTS and 0 <= rollout.round < 2**53):
        return "round"
    parts = [part for one in rollout.completions for part in one.parts]
    whole = bool(rollout.completions) and all(1 <= len(one.parts) <= MAX_TURNS for one in rollout.completions)
    if not whole or any(part.mime != "text/plain" or part.data for part in parts):
        return "completions"
    return "length" if any(len(text) > MAX_TEXT for text in texts) else ""


def _sketch(text: str, question: str) -> list[int]:
    """The least hashes of a long text's runs of three words: texts that differ in a few words share most. With the
    question in each, so that only answers to the same one are alike."""
    if len(text) < 2 * LONG - 1 or len(words := re.findall(r"\w+", text.casefold())) < LONG:
        return []
    runs = {" ".join((question, *words[at : at + 3])).encode() for at in range(len(words) - 2)}
    return sorted(int.from_bytes(hashlib.blake2b(run, digest_size=7).digest()) for run in runs)[:SKETCH]


def main() -> None:
    """Serves until the other end is closed."""
    serve(prepare)
