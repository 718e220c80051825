"""A command from beginning to end: folder, display, Ctrl-C, and what is printed last."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from shoal.cli.display import Display, make_display
from shoal.config.settings import ENDLESS, Config
from shoal.errors import UserError
from shoal.evaluation.pass_at_k import Estimate, Evaluation, evaluate
from shoal.parallel.rank_zero import LedVerifier
from shoal.parallel.ranks import joined
from shoal.rollout import seed_of
from shoal.runs.folder import CURVES, clean, run_metrics

if TYPE_CHECKING:
    from shoal.runs.session import Outcome


def run_session(config: Config, out: Path | None, resume: Path | None, quiet: bool) -> int:
    """`shoal run`. Returns the exit code: 0, or 130 if it was stopped before its last round."""
    return _session(config, out, resume, quiet, joins=False)


def join_session(config: Config, out: Path | None, resume: Path | None, quiet: bool) -> int:
    """`shoal join`: one node in a swarm that spans processes. Returns the exit code as `run_session` does."""
    from shoal.runs.join import check_network  # the network, only now

    check_network(config)
    return _session(config, out, resume, quiet, joins=True)


def _session(config: Config, out: Path | None, resume: Path | None, quiet: bool, joins: bool) -> int:
    from shoal.runs.session import execute, follow  # torch, only now

    with joined(config.policy.device) as ranks:
        if not ranks.leader:
            with _stoppable([]) as stop:
                return 0 if follow(config, ranks, stop, ranks.agreed("") if joins else "").finished else 130
        from shoal.identity.keys import Identity, identity_path

        console = Console()
        identity = Identity.load_or_create(identity_path()) if joins else None

        @contextmanager
        def watch(names: list[str], rows: Sequence[Mapping[str, Any]]) -> Iterator[Display]:
            with make_display(console, config.rounds, names, quiet, rows) as display:
                displays.append(display)
                yield display

        displays: list[Display] = []
        with _stoppable(displays) as stop:
            outcome = execute(config, out, resume, identity, watch, stop, ranks)
        _print_gains(console, outcome)
        if not outcome.finished:
            limit = f" of {config.rounds}" if config.rounds < ENDLESS else ""
            console.print(f"stopped after round {outcome.round}{limit}; to go on:")
            command = "join" if joins else "run"
            console.print(f"  shoal {command} --resume {outcome.folder}", soft_wrap=True, highlight=False)
    return 0 if outcome.finished else 130


def eval_session(config: Config, model: str, ks: Sequence[int] | None, as_json: bool) -> int:
    """`shoal eval`. Returns the exit code."""
    config = config.resolved()
    number, samples = config.evaluation.questions, config.evaluation.samples
    assert isinstance(number, int)
    assert isinstance(samples, int)
    ks = sorted({1, *(ks or [samples])})
    if not 1 <= ks[0] <= ks[-1] <= samples:
        raise UserError(f"pass@{ks[-1] if ks[-1] > samples else ks[0]} needs --samples {max(ks)} or more, and K >= 1")
    with joined(config.policy.device) as ranks:
        console = Console(stderr=as_json, quiet=not ranks.leader)
        with console.status(f"asking {model}"):
            from shoal.runs.models import build_policy  # torch, only now
            from shoal.sandbox.verifier import Verifier
            from shoal.tasks import Tasks

            tasks = Tasks(config.tasks)
            questions = tasks.held_out(number, config.seed)
            policy = build_policy(config, model, ranks)
            with Verifier(config.tasks) as verifier:
                scorer = LedVerifier(verifier, ranks)
                result = evaluate(policy, scorer, questions, samples, seed_of(config.seed, "evaluate"))
    if not ranks.leader:
        return 0
    if result.unanswered:  # of an endpoint
        lost = f"{result.unanswered} questions were not answered and are left out ({policy.trouble})"
        if not any(result.correct.values()):
            raise UserError(lost)
        console.print(lost, soft_wrap=True, highlight=False, markup=False)
    if as_json:
        print(json.dumps(clean(_evaluation_object(result, ks, model, config))))
    else:
        console.print(_evaluation_table(result, ks, model))
    return 0


@contextmanager
def _stoppable(displays: Sequence[Display]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; a second one interrupts. `displays`: those that there are by then."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        for display in displays:
            display.note("stopping after this round; Ctrl-C again stops at once and loses it")

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_gains(console: Console, outcome: Outcome) -> None:
    """What the run gave, mean over its nodes."""
    rows = run_metrics(outcome.folder)
    evaluated = [row["round"] for row in rows if row.get("eval/pass@1") is not None]
    rounds = max((row["round"] for row in rows), default=0)
    if rounds and evaluated:
        first, last = _means(rows, "eval/pass@1", (min(evaluated),) * 2, (max(evaluated),) * 2)
        times = f", {last / first:.1f} times" if first else ""
        tenth = max(1, rounds // 10)
        early, late = _means(rows, "reward/local", (1, tenth), (rounds - tenth + 1, rounds))
        console.print(f"held-out pass@1  {first:.3f} -> {last:.3f}{times} (round {min(evaluated)} to {max(evaluated)})")
        console.print(f"local reward     {early:.3f} -> {late:.3f} (first and last {tenth} rounds)")
        console.print(f"{rounds} rounds on {outcome.device}")
    console.print(f"folder  {outcome.folder}", soft_wrap=True, highlight=False)
    console.print(f"curves  {outcome.folder / CURVES}", soft_wrap=True, highlight=False)


def _means(rows: Sequence[Mapping[str, Any]], key: str, *spans: tuple[int, int]) -> list[float]:
    """The mean in each span of rounds, over the nodes that have a value in all: an endpoint that died has none."""
    known = [row for row in rows if row.get(key) is not None]
    within = [[row for row in known if first <= row["round"] <= last] for first, last in spans]
    nodes = set.intersection(*({row["node"] for row in span} for span in within))
    values = ([row[key] for row in span if row["node"] in nodes] for span in within)
    return [fmean(figures) if figures else 0.0 for figures in values]


def _evaluation_object(result: Evaluation, ks: Sequence[int], model: str, config: Config) -> dict[str, Any]:
    def estimates(task: str | None) -> dict[str, Any]:
        found = {f"pass@{k}": result.pass_at(k, task) for k in ks}
        return {name: {"value": e.value, "low": e.low, "high": e.high} for name, e in found.items()}

    return {
        "model": model,
        "suite": None if config.tasks.tasks else config.tasks.suite,
        "seed": config.seed,
        "samples": result.samples,
        "interval": "Wilson 95 %, over questions",
        "unanswered": result.unanswered,
        "all": {"questions": sum(map(len, result.correct.values())), **estimates(None)},
        "tasks": {task: {"questions": len(c), **estimates(task)} for task, c in result.correct.items()},
    }


def _evaluation_table(result: Evaluation, ks: Sequence[int], model: str) -> Table:
    def cell(estimate: Estimate) -> str:
        return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"

    table = Table(title=f"{model}: held-out, {result.samples} samples a question, 95 % Wilson over questions", box=None)
    table.add_column("task")
    table.add_column("questions", justify="right")
    for k in ks:
        table.add_column(f"pass@{k}", justify="right")
    for task, counts in result.correct.items():
        table.add_row(task, str(len(counts)), *(cell(result.pass_at(k, task)) for k in ks))
    table.add_section()
    total = sum(map(len, result.correct.values()))
    table.add_row("all", str(total), *(cell(result.pass_at(k)) for k in ks), style="bold")
    return table
