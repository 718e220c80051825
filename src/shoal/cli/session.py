"""`shoal run` and `shoal join` from beginning to end: display, Ctrl-C, and what is printed last."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from shoal.cli.command import found_commands
from shoal.config.settings import Config
from shoal.display import make_display
from shoal.display.lines import QuietDisplay
from shoal.display.text import print_paragraph, print_warning
from shoal.parallel.ranks import is_rank_zero, joined
from shoal.runs.data import check_data, data_lines, has_data
from shoal.runs.watcher import Watcher
from shoal.signals import on_stop
from shoal.tasks import Tasks

HOPELESS: Final = 3
"""The exit code where nothing can be learned."""


def run_session(
    config: Config,
    out: Path | None = None,
    resume: Path | None = None,
    quiet: bool = False,
    joins: bool = False,
    ask: str = "",
) -> int:
    """`shoal run`, or `shoal join` if the node `joins` a swarm of many machines. `out`: the folder of a new run
    (default: runs/DATE-TIME); `resume`: that of a run to go on with. `ask`: the way of asking data (`--ask`). Returns
    the exit code: 0, 3 if it ended as nothing can be learned and no number of rounds was given, 130 if stopped."""
    from shoal.identity.keys import Identity, identity_path
    from shoal.policy.named import check_exists
    from shoal.runs.trackers import makers_of

    makers_of(config)  # before data and models, which may come from elsewhere, and before the swarm
    ends = "rounds" not in config.model_fields_set
    if not resume:
        for model in config.local_models:
            check_exists(model)
    doubts = [] if resume else introduce(config, quiet)
    from shoal.cli.result import print_result  # pyarrow, and below torch, only now
    from shoal.runs.session import execute, follow, ready

    with joined(config.policy.device) as ranks:
        watchers: list[Watcher] = []
        if not ranks.is_zero:
            with _stoppable(watchers) as stop:
                return 0 if follow(config, ranks, stop, ranks.broadcast("") if joins else "").finished else 130
        ready(config, joins)  # here, Ctrl-C still stops at once
        console = Console(highlight=False)
        if ask and not resume and ranks.size == 1 and (ask != "auto" or has_data(config)):
            prepared = found_commands()["probe"].load("probe").prepare(config, ask, Console(quiet=quiet))
            config = prepared.config
            if prepared.verdict and ends:
                print_warning(console, f"{prepared.verdict}\n  or go on all the same: --rounds 100")
                return HOPELESS
            doubts += [prepared.verdict] if prepared.verdict else []
        identity = Identity.load_or_create(identity_path()) if joins else None

        def watch(names: list[str], rows: Sequence[Mapping[str, Any]]) -> Watcher:
            shown = QuietDisplay(Console(stderr=True)) if quiet else make_display(console, config.rounds, names, rows)
            watchers.append(shown)
            return shown

        with _stoppable(watchers) as stop:
            outcome = execute(config, out, resume, identity, watch, stop, ranks, ends, doubts)
        print_result(console, outcome, config, "join" if joins else "run", quiet)
    return 0 if outcome.finished else HOPELESS if outcome.hopeless else 130


def introduce(config: Config, quiet: bool) -> list[str]:
    """Shows what data are taken for. It comes before torch is imported: what is wrong with a file is said at once.
    Returns what the command `validate` doubts about them. Raises `UserError`."""
    check_data(config, trains=True)
    if not has_data(config) or not is_rank_zero():
        return []
    for line in [] if quiet else data_lines(Tasks(config.tasks)):
        print_paragraph(Console(highlight=False), Text(line), 4)
    validate = found_commands().get("validate")
    return list(validate.load("validate").doubts(config)) if validate else []


@contextmanager
def _stoppable(watchers: Sequence[Watcher]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second raises `KeyboardInterrupt`. `watchers` get a note."""
    stop = threading.Event()

    def ask() -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        for watcher in watchers:
            watcher.note("stopping after this round (Ctrl-C again: back to the last checkpoint)")

    with on_stop(ask):
        yield stop
