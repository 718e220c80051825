"""A command from beginning to end: folder, display, Ctrl-C, and what is printed last."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from shoal.cli.display import Display, make_display
from shoal.cli.status import lines
from shoal.config.settings import ENDLESS, Config
from shoal.parallel.ranks import joined
from shoal.runs.folder import CURVES, run_metrics

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
        if not ranks.is_zero:
            with _stoppable([]) as stop:
                return 0 if follow(config, ranks, stop, ranks.broadcast("") if joins else "").finished else 130
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
            outcome = execute(config, out, resume, identity, watch, stop, ranks, lines)
        _print_gains(console, outcome)
        if not outcome.finished:
            limit = f" of {config.rounds}" if config.rounds < ENDLESS else ""
            console.print(f"stopped after round {outcome.round}{limit}; to go on:")
            command = "join" if joins else "run"
            console.print(f"  shoal {command} --resume {outcome.folder}", soft_wrap=True, highlight=False)
    return 0 if outcome.finished else 130


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
