"""What a run prints last: its figures, answers before and after, what it left, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from shoal.config.settings import ENDLESS, Config
from shoal.display.answers import print_pairs
from shoal.display.figures import Progress, clock
from shoal.display.text import print_next, print_paragraph, print_warning
from shoal.runs.folder import CONFIG, CURVES, best_model, best_node, checkpoints, read_metrics
from shoal.runs.standing import RECENT, REWARD
from shoal.runs.transcripts import pairs

if TYPE_CHECKING:
    from shoal.runs.session import Outcome

Rows = Sequence[Mapping[str, Any]]
LABEL = 17
"""Columns before a figure."""


def print_result(console: Console, outcome: Outcome, config: Config, command: str, quiet: bool) -> None:
    """What the run gave (a mean over its nodes), where it is, and what to do next."""
    folder, rows = outcome.folder, read_metrics(outcome.folder)

    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    if not quiet:
        console.print()
    for line in _figures(outcome, rows):
        print_paragraph(console, line, LABEL)
    for warning in filter(None, outcome.warnings):
        print_warning(console, warning)
    model = best_model(folder, rows)
    node = model.name if model else best_node(rows)
    kept = [] if quiet else pairs(folder, node)
    print_pairs(console, node, kept)
    say(f"folder   {folder}")
    if model:
        say(f"model    {model}")
    say(f"picture  {folder / CURVES}")
    if not quiet:
        say(f"window   shoal watch {shlex.quote(str(folder))}")
    run = shlex.quote(str(folder))
    allow_code = " --allow-code" if config.code else ""
    goes_on = bool(checkpoints(folder))
    if not outcome.finished:
        limit = f" of {config.rounds}" if config.rounds < ENDLESS else ""
        how = f"; to go on:\n  shoal {command} --resume {run}{allow_code}"
        if not goes_on:
            how = ", without a checkpoint: it cannot go on"
        say(f"stopped after round {outcome.round}{limit}{how}")
    elif not quiet:
        steps = {}
        if model:
            of_config = shlex.quote(str(folder / CONFIG))
            if not any(pair.after.conversation for pair in kept):  # it asks once
                steps[f"shoal ask {run}{allow_code}"] = "ask the model, beside the one from which it began"
            if any(row.get("eval/pass@1") is not None for row in rows):
                steps[f"shoal eval {shlex.quote(str(model))} --config {of_config}{allow_code}"] = "measure it"
            else:  # nothing tells which answers are right
                steps[f"shoal export {run} --to {shlex.quote(f'{folder.name}-model')}"] = "take it away"
        if goes_on:
            steps[f"shoal {command} --resume {run} --rounds {2 * config.rounds}{allow_code}"] = "train on"
        print_next(console, steps)


def _figures(outcome: Outcome, rows: Rows) -> list[str]:
    """What the run gave, in lines."""
    evaluated = [row["round"] for row in rows if row.get("eval/pass@1") is not None]
    rounds = max((row["round"] for row in rows), default=0)
    if not rounds:
        return []
    late, early = (
        Progress(rounds, (), [row for row in rows if row["round"] <= until]).mean_row().get(REWARD, 0.0)
        for until in (rounds, RECENT)
    )
    measured = Progress(rounds, (), rows).mean_held_out()
    blind = next((row["eval/blind"] for row in rows if row.get("eval/blind") is not None), None)
    ignoring = f"; answers that ignore the question get {blind:.3f}" if blind is not None else ""
    ends = f"first and last {RECENT} rounds"
    held_out = []
    if evaluated:
        begun, ended = min(evaluated), max(evaluated)
        first, last = measured[0], measured[-1]
        change = f"{first:.3f} -> {last:.3f} (round {begun} to {ended})"
        once = f"{first:.3f} in round {begun}, and not measured after it"
        held_out = [f"held-out pass@1  {change if begun < ended else once}{ignoring}"]
    return [
        *held_out,
        f"local reward     {early:.3f} -> {late:.3f} ({ends})" if rounds > RECENT else f"local reward     {late:.3f}",
        f"{rounds} round{'s' * (rounds > 1)} on {outcome.device} in {clock(outcome.seconds)}",
    ]
