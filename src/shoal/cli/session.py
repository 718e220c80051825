"""`shoal run` and `shoal join` from beginning to end: display, Ctrl-C, and what is printed last."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.text import Text

from shoal.cli.command import found_commands
from shoal.config.settings import ENDLESS, Config
from shoal.display import make_display
from shoal.display.answers import print_pairs
from shoal.display.figures import Progress, clock
from shoal.display.lines import QuietDisplay
from shoal.display.text import print_next, print_paragraph, print_warning
from shoal.parallel.ranks import is_rank_zero, joined
from shoal.runs.data import check_data, data_lines, has_data
from shoal.runs.folder import best_model, best_node, checkpoints, read_metrics
from shoal.runs.standing import RECENT, REWARD, RIGHT, measured
from shoal.runs.watcher import Watcher
from shoal.signals import on_stop
from shoal.tasks import Tasks

if TYPE_CHECKING:
    from shoal.runs.session import Outcome

Rows = Sequence[Mapping[str, Any]]


def print_result(console: Console, outcome: Outcome, config: Config, command: str, quiet: bool) -> None:
    """What the run gave (a mean over its nodes), where it is, and what to do next. Warnings come first."""
    from shoal.runs.transcripts import pairs  # pyarrow, only now

    folder, rows = outcome.folder, read_metrics(outcome.folder)
    model = best_model(folder, rows)
    node = model.name if model else best_node(rows)
    kept = [] if quiet else pairs(folder, node)

    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    if not quiet:
        console.print()
    for warning in filter(None, outcome.warnings):
        print_warning(console, warning)
    print_pairs(console, node, kept)
    for line in [*_right(rows), *_figures(outcome, rows)]:
        print_paragraph(console, line, 4)
    say(f"folder   {folder}")
    if model:
        say(f"model    {model}")
    run = shlex.quote(str(folder))
    allow_code = " --allow-code" if config.code else ""
    goes_on = bool(checkpoints(folder))
    if not outcome.finished:
        limit = f" of {config.rounds}" if config.rounds < ENDLESS else ""
        on = "as nothing can be learned; to go on all the same" if outcome.hopeless else "to go on"
        how = f"{', ' if outcome.hopeless else '; '}{on}:\n  shoal {command} --resume {run}{allow_code}"
        if not goes_on:
            how = ", without a checkpoint: it cannot go on"
        if model and not quiet:
            say(f"ask it   shoal ask {run}{allow_code} 'Your question'")
        say(f"stopped after round {outcome.round}{limit}{how}")
    elif not quiet:
        steps = {}
        if model:
            if not any(pair.after.conversation for pair in kept):  # it asks once
                steps[f"shoal ask {run}{allow_code} 'Your question'"] = "ask it, beside the model from which it began"
            steps[f"shoal export {run} --to {shlex.quote(f'{folder.name}-model')}"] = "take it away"
        steps[f"shoal watch {run}"] = "see all answers and curves in the browser"
        if goes_on:
            steps[f"shoal {command} --resume {run} --rounds {2 * config.rounds}{allow_code}"] = "train on"
        print_next(console, steps)


def _right(rows: Rows) -> list[str]:
    """The share of held-out questions that were answered right, before and after."""
    evaluated = [row for row in rows if row.get(RIGHT) is not None]
    if not evaluated:
        return []
    rounds, nodes = [row["round"] for row in evaluated], Progress(0, (), rows).held_out.values()
    questions = int(evaluated[-1].get("eval/questions") or 0)
    ends = measured(nodes, questions)
    of = f"{questions} questions" if questions else "questions"
    many = sum(len(values) > 1 for values in nodes) or len(nodes)
    whose = f"they never practised, mean of {many} nodes" if many > 1 else "it never practised"
    lines = [f"right on {of} that {whose} (held-out pass@1):"]
    for round, end in zip((min(rounds), max(rounds)), ends, strict=False):
        when = f"after round {round}" if round else "before training"
        interval = f"   (95% interval: {end.low:.1%} to {end.high:.1%})" if questions else ""
        lines.append(f"  {when:17}{end.value:6.1%}{interval}")
    blind = next((row["eval/blind"] for row in evaluated if row.get("eval/blind") is not None), None)
    if blind is not None:
        lines.append(f"  {'blind':17}{blind:6.1%}   answers that ignore the question")
    return lines + ["  not measured after it"] * (len(ends) < 2)


def _figures(outcome: Outcome, rows: Rows) -> list[str]:
    """What the run gave otherwise, in lines."""
    rounds = max((row["round"] for row in rows), default=0)
    if not rounds:
        return []
    late, early = (
        Progress(rounds, (), [row for row in rows if row["round"] <= until]).mean_row().get(REWARD, 0.0)
        for until in (rounds, RECENT)
    )
    ends = f"first and last {RECENT} rounds"
    shares = [row["gradient/peers"] for row in rows if row.get("gradient/peers") is not None]
    return [
        *([f"peers gave       {fmean(shares):.0%} of the gradient"] if any(shares) else []),
        f"local reward     {early:.3f} -> {late:.3f} ({ends})" if rounds > RECENT else f"local reward     {late:.3f}",
        f"{rounds} round{'s' * (rounds > 1)} on {outcome.device} in {clock(outcome.seconds)}",
    ]


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
    with Console(stderr=True, quiet=quiet or not is_rank_zero()).status("loading torch and transformers"):
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
            watcher.note(
                "stopping when this round is done and saved (Ctrl-C again: at once, back to the last checkpoint)"
            )

    with on_stop(ask):
        yield stop
