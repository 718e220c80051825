"""`shoal verify ARCHIVE`: everything that an archive says is made again from the signed bytes."""

import argparse
import json
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from shoal.cli.flags import add_allow_code, add_data, add_settings, config_of, given_settings
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.membership.settings import secret_of
from shoal.runs.swarm_status import reasons
from shoal.tasks.suites import SUITES
from shoal_extras.archive.format import parts_of
from shoal_extras.archive.merge import rewrite
from shoal_extras.archive.reader import Reader, withdrawn
from shoal_extras.archive.worker import Found, Rows, Start, Weigh, stripped

HELP = """Verifies an archive, whoever made it: who signed each rollout, its question (made again from task, seed and
index), its rewards (computed again, in the sandbox), copies, and the limits of each key. Rollouts of tasks that are not
installed are counted apart. Exits with 1 if anything does not hold.

  shoal verify lagoon                        by the tasks of all suites
  shoal verify lagoon --config run.toml      by those of a run: data sets, parameters of your own
  shoal verify lagoon --drop                 and leave out what does not hold"""
PROCESSES: Final = 2
ALONE: Final = 2.0  # seconds of processor time for one rollout, as in admission
MOST_SLOW: Final = 64  # rollouts that take longer or crash; then it ends
MINUTE, ROUND, ROUNDS = 40 * 60 + 160, 960.0, 8
"""Limits of a key: rollouts a minute; seconds between two of one round and slot; and how many there are of these."""
ALIKE: Final = 6  # hashes of a sketch that copies share
SKETCHES: Final = 500_000  # hashes of long texts that are remembered
CHECKS: Final = {
    "signed by its maker": ("malformed", "version", "signature"),
    "as every swarm asks": ("name", "round", "completions", "length"),
    "question made again": ("task", "seed", "question", "held out", "slow question"),
    "answers scored": ("slow", "crash", "slow task", "replay", "environment"),
    "prompt as claimed": ("prompt",),
    "rewards as claimed": ("reward",),
    "columns follow from the envelopes": ("columns",),
    "no copy of another": ("duplicate", "near-duplicate"),
    "within the limits of its key": ("quota", "repeated"),
    "its maker lets it be kept": ("not kept", "withdrawn"),
}
SCORED: Final = ("question made again", "answers scored", "prompt as claimed", "rewards as claimed")


class Marks:
    """What was seen of an archive so far: copies, and how much each key sent. It grows with the archive, but for long
    texts, of which the last ones are compared."""

    def __init__(self) -> None:
        self.seen: set[int] = set()  # hashes of ids and of texts
        self._minutes: Counter[int] = Counter()
        self._places: dict[int, tuple[float, int]] = {}
        self._sketches: OrderedDict[int, tuple[bytes, tuple[int, ...]]] = OrderedDict()

    def add(self, found: Found) -> str:
        """Why the next rollout does not count; empty if it does."""
        id, texts, minute = hash(found.id), hash(found.texts), hash((found.key, found.time // 60))
        self._minutes[minute] += 1
        last, times = self._places.get(found.place, (-ROUND, 0))
        self._places[found.place] = found.time, times + 1
        reason = ""
        if id in self.seen or abs(found.time - last) < ROUND:
            reason = "repeated"
        elif self._minutes[minute] > MINUTE or times >= ROUNDS:
            reason = "quota"
        elif found.texts and texts in self.seen:
            reason = "duplicate"
        elif found.sketches and 2 * sum(self._is_like(found.key, one) for one in found.sketches) >= len(found.sketches):
            reason = "near-duplicate"
        self.seen.update((id, texts))
        for sketch in found.sketches:
            for one in sketch[:2]:
                self._sketches.setdefault(one, (found.key, tuple(sketch)))
        while len(self._sketches) > SKETCHES:
            self._sketches.popitem(last=False)
        return reason

    def _is_like(self, key: bytes, sketch: Sequence[int]) -> bool:
        seen = (self._sketches.get(one) for one in sketch[:2])
        return any(one and one[0] != key and len(set(one[1]).intersection(sketch)) >= ALIKE for one in seen)


class Verified:
    """What was found: rollouts that do not hold, by reason, and their ids."""

    def __init__(self) -> None:
        self.rollouts = self.not_installed = 0
        self.seconds = 0.0
        self.wrong, self.bad = Counter[str](), set[str]()


def start_of(tasks: TasksConfig | None, context: bytes = b"") -> Start:
    """What a process scores by. Without tasks: by all suites."""
    if tasks is None:
        specs = {spec.model_dump_json(exclude={"weight"}): spec for suite in SUITES.values() for spec in suite}
        tasks = TasksConfig(sources=list(specs.values()))
    return Start(tasks.model_copy(update={"partial_credit": True}).model_dump(mode="json"), context)


def weigh(reader: Reader, envelopes: Sequence[bytes]) -> list[Found]:
    """What follows from envelopes: all at once, or one by one if one of them takes too long or breaks the process."""
    try:
        return reader.ask(Weigh(list(envelopes)), 5.0 + 0.01 * len(envelopes)).found
    except (TimeoutError, EOFError):
        return [_alone(reader, one) for one in envelopes]


def _alone(reader: Reader, envelope: bytes) -> Found:
    try:
        return reader.ask(Weigh([envelope]), ALONE).found[0]
    except (TimeoutError, EOFError) as error:
        with Reader() as other:
            [found] = other.ask(Weigh([envelope])).found
        return Found("slow" if isinstance(error, TimeoutError) else "crash", True, found.id, found.key, found.time)


def _checked(reader: Reader, archive: Path, name: str, number: int) -> Rows:
    """What is true of a row group; with -1 how many there are."""
    try:
        return reader.row_group(archive, name, number, 2)
    except (TimeoutError, EOFError):
        with Reader() as other:
            rows = other.row_group(archive, name, number, 0)
        return Rows([], [stripped(row, _alone(reader, row.envelope)) for row in rows.rows], rows.groups)


def verify(archive: Path, start: Start, on_progress: Callable[[int], None] = lambda rollouts: None) -> Verified:
    """Verifies an archive. Raises `UserError` for one that cannot be read, or that holds the sandbox up."""
    result, marks, gone = Verified(), Marks(), withdrawn([archive])
    with ExitStack() as stack:
        readers: SimpleQueue[Reader] = SimpleQueue()
        for _ in range(PROCESSES):
            readers.put(reader := stack.enter_context(Reader(start)))
            weigh(reader, [])  # now it makes its tasks, which takes seconds
        began = time.monotonic()

        def work(name: str, number: int) -> Rows:
            reader = readers.get()
            try:
                return _checked(reader, archive, name, number)
            finally:
                readers.put(reader)

        def row_groups() -> Iterator[Rows]:
            ahead = deque[Future[Rows]]()  # across files, so that no process waits
            for name in parts_of(archive):
                for number in range(work(name, -1).groups):
                    ahead.append(pool.submit(work, name, number))
                    if len(ahead) > 2 * PROCESSES:
                        yield ahead.popleft().result()
            yield from (each.result() for each in ahead)

        pool = ThreadPoolExecutor(PROCESSES)
        stack.callback(pool.shutdown, cancel_futures=True)
        for rows in row_groups():
            for found in rows.found:
                until, _ = gone.get((found.key, found.swarm), (-1.0, b""))
                wrong = [found.reason or marks.add(found), *found.wrong, "" if rows.columns else "columns"]
                wrong += ["not kept"] * found.not_kept + ["withdrawn"] * (found.time <= until)
                result.rollouts += 1
                result.not_installed += not found.installed
                result.wrong.update(filter(None, wrong))
                if any(wrong):
                    result.bad.add(found.id)
            result.seconds = time.monotonic() - began
            on_progress(result.rollouts)
            if result.wrong["slow"] + result.wrong["crash"] > MOST_SLOW:
                raise UserError(f"{archive} holds the sandbox up: {MOST_SLOW} rollouts take too long or break it")
    return result


def proof(envelope: bytes) -> dict[str, Any]:
    """What an envelope proves: its key, the question and the rewards, made again; `wrong` says what does not hold."""
    with Reader(start_of(None)) as reader:
        [found] = weigh(reader, [envelope])
    wrong = found.reason or ("" if found.installed else "its task is not installed here")
    question = found.question.shown if found.question else None
    return {"key": found.key.hex(), "wrong": wrong, "question": question, "rewards": list(found.rewards)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="its folder")
    parser.add_argument("--config", type=Path, metavar="FILE", help="tasks from a TOML file")
    parser.add_argument("--drop", action="store_true", help="leave out of the archive what does not hold")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_allow_code(parser)
    add_data(parser)
    add_settings(parser, ["tasks.suite", "tasks.only", "network.name", "network.secret_file"])


def command(args: argparse.Namespace) -> int:
    given = given_settings(args)
    config = config_of(args.config, given, args.allow_code, ("tasks", "network"))
    console = Console(stderr=args.json, highlight=False)
    chosen = config.tasks if args.config or "tasks" in given else None
    context = secret_of(config).context
    with console.status("verifying") as status:
        result = verify(args.archive, start_of(chosen, context), lambda n: status.update(f"verifying: {n:,} rollouts"))
        if args.drop and result.bad:
            rewrite([args.archive], args.archive, lambda row, found: found.id not in result.bad, context)
    if args.json:
        told = {"rollouts": result.rollouts, "not_installed": result.not_installed, "wrong": dict(result.wrong)}
        print(json.dumps(told | {"does_not_hold": len(result.bad), "seconds": result.seconds}))
        return int(bool(result.wrong))
    table = Table("", "holds", "does not", "not checked", "why", box=None, pad_edge=False, header_style="dim")
    for what, each in CHECKS.items():
        wrong = {reason: result.wrong[reason] for reason in each if result.wrong[reason]}
        bad, apart = sum(wrong.values()), result.not_installed if what in SCORED else 0
        table.add_row(what, *(f"{n:,}" for n in (result.rollouts - bad - apart, bad, apart)), reasons(wrong))
    console.print(table)
    rate = result.rollouts / max(result.seconds, 1e-3)
    console.print(f"{result.rollouts:,} rollouts in {result.seconds:.1f} s ({rate:,.0f} a second)")
    return int(bool(result.wrong))
