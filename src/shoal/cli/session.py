"""`shoal run` and `shoal join` from beginning to end: display, Ctrl-C, and what is printed last."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from shoal.cli.result import print_result
from shoal.cli.window import Window
from shoal.config.settings import Config
from shoal.display import make_display
from shoal.display.lines import QuietDisplay
from shoal.parallel.ranks import joined

if TYPE_CHECKING:
    from shoal.runs.watcher import Watcher


@dataclass(frozen=True)
class Options:
    """What of a run is not a setting: its folder, and what is shown."""

    out: Path | None = None
    """The folder of a new run (default: runs/DATE-TIME)."""
    resume: Path | None = None
    """The folder of a run to go on with."""
    quiet: bool = False
    window: bool = False
    """Whether to show the run in the browser while it goes."""
    question: str = ""
    """What to ask the model in the end."""


def run_session(config: Config, options: Options) -> int:
    """`shoal run`. Returns the exit code: 0, or 130 if it was stopped before its last round."""
    return _session(config, options, joins=False)


def join_session(config: Config, options: Options) -> int:
    """`shoal join`: one node in a swarm that spans processes. Returns the exit code as `run_session` does."""
    from shoal.runs.join import check_network  # the network, only now

    check_network(config)
    return _session(config, options, joins=True)


def _session(config: Config, options: Options, joins: bool) -> int:
    from shoal.policy.named import check_exists

    if not (options.resume or config.policy.factory):
        for model in dict.fromkeys(config.policy.model):
            check_exists(model)
    from shoal.runs.session import execute, follow, new_folder, ready  # torch, only now

    with joined(config.policy.device) as ranks:
        if not ranks.is_zero:
            with _stoppable([]) as stop:
                return 0 if follow(config, ranks, stop, ranks.broadcast("") if joins else "").finished else 130
        from shoal.identity.keys import Identity, identity_path

        config = ready(config)  # here, Ctrl-C still stops at once
        console, quiet = Console(highlight=False), options.quiet
        identity = Identity.load_or_create(identity_path()) if joins else None
        folder = options.resume or options.out or new_folder()
        watchers: list[Watcher] = []
        windows: list[Window] = []

        @contextmanager
        def watch(names: list[str], rows: Sequence[Mapping[str, Any]]) -> Iterator[Watcher]:
            with ExitStack() as stack:
                display: Watcher = QuietDisplay(Console(stderr=True))
                if not quiet:
                    display = make_display(console, config.rounds, names, rows)
                    stack.enter_context(display)
                    watchers.append(display)
                if options.window:
                    windows.append(shown.enter_context(Window(folder, display.say)))
                else:
                    display.say(f"window         shoal watch {shlex.quote(str(folder))}  (or add --watch)")
                yield display

        with ExitStack() as shown:
            with _stoppable(watchers) as stop:
                out = None if options.resume else folder
                outcome = execute(config, out, options.resume, identity, watch, stop, ranks)
            print_result(console, outcome, config, "join" if joins else "run", quiet, options.question)
            for window in windows:
                if outcome.finished and console.is_interactive and window.address:
                    console.print(f"\nThe window stays at {window.address} until Ctrl-C.", markup=False)
                    window.wait()
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
