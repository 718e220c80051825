"""`shoal run` and `shoal join` from beginning to end: display, Ctrl-C, and what is printed last."""

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

from shoal.cli.before_after import print_pairs
from shoal.cli.display import QuietDisplay, clock, make_display, print_warning
from shoal.cli.next_steps import print_next
from shoal.config.settings import ENDLESS, Config
from shoal.parallel.ranks import joined
from shoal.runs.best import best_model, best_node
from shoal.runs.folder import CONFIG, CURVES, run_metrics
from shoal.runs.transcripts import pairs

if TYPE_CHECKING:
    from shoal.runs.record import Watcher
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
        from shoal.policy.fetch import fetch_models
        from shoal.runs.check_data import check_data

        check_data(config, trains=True)
        config = fetch_models(config)  # here, Ctrl-C still stops at once
        console = Console(highlight=False, soft_wrap=True)
        identity = Identity.load_or_create(identity_path()) if joins else None
        watchers: list[Watcher] = []

        @contextmanager
        def watch(names: list[str], rows: Sequence[Mapping[str, Any]]) -> Iterator[Watcher]:
            if quiet:
                yield QuietDisplay(Console(stderr=True))
                return
            with make_display(console, config.rounds, names, rows, config.evaluation.every) as display:
                watchers.append(display)
                yield display

        with _stoppable(watchers) as stop:
            outcome = execute(config, out, resume, identity, watch, stop, ranks)
        print_result(console, outcome, config, "join" if joins else "run", quiet)
    return 0 if outcome.finished else 130


@contextmanager
def _stoppable(watchers: Sequence[Watcher]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second raises `KeyboardInterrupt`. `watchers` get a note."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        for watcher in watchers:
            watcher.note("stopping after this round (Ctrl-C again: back to the last checkpoint)")

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_result(console: Console, outcome: Outcome, config: Config, command: str, quiet: bool) -> None:
    """What the run gave (a mean over its nodes), where it is, and what to do next."""
    folder, rows = outcome.folder, run_metrics(outcome.folder)

    def say(text: str) -> None:
        console.print(text, markup=False)

    evaluated = [row["round"] for row in rows if row.get("eval/pass@1") is not None]
    rounds = max((row["round"] for row in rows), default=0)
    if rounds and evaluated:
        first, last = _means(rows, "eval/pass@1", (min(evaluated),) * 2, (max(evaluated),) * 2)
        tenth = max(1, rounds // 10)
        early, late = _means(rows, "reward/local", (1, tenth), (rounds - tenth + 1, rounds))
        blind = next((row["eval/blind"] for row in rows if row.get("eval/blind") is not None), None)
        ignoring = f"; answers that ignore the question get {blind:.3f}" if blind is not None else ""
        say(f"held-out pass@1  {first:.3f} -> {last:.3f} (round {min(evaluated)} to {max(evaluated)}){ignoring}")
        say(f"local reward     {early:.3f} -> {late:.3f} (first and last {tenth} rounds)")
        costs = outcome.costs
        saved = f", of which checkpoints took {clock(costs.checkpoints)}" if costs.checkpoints >= 1 else ""
        say(f"{rounds} rounds on {outcome.device} in {clock(costs.all)}{saved}")
    say(f"folder  {folder}")
    say(f"curves  {folder / CURVES}")
    for warning in filter(None, outcome.warnings):
        print_warning(console, warning)
    model = best_model(folder, rows)
    node = model.name if model else best_node(rows)
    if not quiet:
        print_pairs(console, node, pairs(folder, node))
    if model:
        say(f"model   {model}")
    allow_code = " --allow-code" if config.code else ""
    if not outcome.finished:
        limit = f" of {config.rounds}" if config.rounds < ENDLESS else ""
        say(f"stopped after round {outcome.round}{limit}; to go on:\n  shoal {command} --resume {folder}{allow_code}")
    elif not quiet:
        steps = {f"shoal watch {folder}": "charts, answers, who learned from whom"}
        if model:
            steps[f"shoal eval {model} --config {folder / CONFIG}{allow_code}"] = "measure the model, with intervals"
            steps[f"shoal export {folder} --to gguf:model.Q8_0.gguf"] = "take it away: GGUF, a folder or hub:NAME"
        steps[f"shoal {command} --resume {folder} --rounds {2 * config.rounds}{allow_code}"] = "train on"
        print_next(console, steps)


def _means(rows: Sequence[Mapping[str, Any]], key: str, *spans: tuple[int, int]) -> list[float]:
    """The mean in each span of rounds, over the nodes that have a value in all of them."""
    known = [row for row in rows if row.get(key) is not None]
    within = [[row for row in known if first <= row["round"] <= last] for first, last in spans]
    nodes = set.intersection(*({row["node"] for row in span} for span in within))
    values = ([row[key] for row in span if row["node"] in nodes] for span in within)
    return [fmean(figures) if figures else 0.0 for figures in values]
