"""`shoal eval --harness lm-eval`: models on the tasks of EleutherAI's harness, side by side.

Tasks are code of other people, and whoever names one runs it. The harness is an extra, imported when it is used.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.cli.flags import config_of, given_settings
from shoal.config.load import merged
from shoal.errors import UserError
from shoal.policy.fetch import fetch_models
from shoal.untrusted import json_safe, printable

OWN = {
    "tasks.suite": "--suite",
    "tasks.answer": "--answer",
    "evaluation.samples": "--samples",
    "k": "--k",
    "show": "--show",
    "config": "--config",
    "data": "--data",
    "policy.max_completion_length": "--max-completion-length",
    "policy.temperature": "--temperature",
    "policy.top_p": "--top-p",
    "policy.engine": "--engine",
}
"""What is for shoal's own tasks: those of a harness say how answers are decoded."""


@dataclass(frozen=True)
class Figure:
    """What a harness found in one task by one metric."""

    task: str
    metric: str
    samples: int | None
    """Questions that it is a figure of, where the harness says so."""
    value: float
    stderr: float | None
    """Its standard error, as the harness computes it."""

    def text(self) -> str:
        return f"{self.value:.3f}" + ("" if self.stderr is None else f" ± {self.stderr:.3f}")


@dataclass(frozen=True)
class Asked:
    """What a model is asked."""

    tasks: Sequence[str]
    """As the harness names them."""
    include_path: Path | None = None
    """A folder with tasks of lm-eval in YAML."""
    limit: int | None = None
    """Questions of each task; None: all."""
    examples: int | None = None
    """Worked examples before each question; None: as the task says."""
    seed: int | None = None
    """None: the harness's own."""


def check(args: argparse.Namespace) -> None:
    """Raises `UserError` for arguments that do not fit together."""
    given = vars(args)
    for name, flag in OWN.items():
        if given.get(name) or ("." in name and name in given):  # a setting is there only if it was given
            raise UserError(f"--harness has tasks of its own, which say how answers are decoded: leave out {flag}")
    if not args.task:
        raise UserError("--harness needs at least one --task, such as --task arc_easy")
    if args.include_path is not None and not args.include_path.is_dir():
        raise UserError(f"--include-path {args.include_path}: there is no such folder")
    if args.include_path is not None and not args.allow_code:
        raise UserError(f"the YAML in {args.include_path} can run code here: add --allow-code if you trust it")
    if find_spec("lm_eval") is None:
        raise UserError("lm-eval is not installed: `pip install 'shoal[lm-eval]'`")


def harness_session(args: argparse.Namespace) -> int:
    """`shoal eval --harness`. Returns the exit code."""
    check(args)
    own = argparse.Namespace(**{**vars(args), "task": None})  # the harness's tasks are not shoal's
    config = config_of(None, merged(given_settings(own), {"policy": {"model": args.model}}), args.allow_code)
    given = vars(args)
    limit = given.get("evaluation.questions")
    examples = given.get("tasks.examples")
    asked = Asked(
        args.task,
        args.include_path,
        None if limit in (None, "auto") else int(config.evaluation.questions),
        None if examples in (None, "task") else int(config.tasks.examples),
        config.seed if "seed" in given else None,
    )
    console = Console(stderr=args.json)
    fetch_models(config)
    config = config.resolved()
    found: dict[str, list[Figure]] = {}
    try:
        for model in config.policy.model:
            from shoal.runs.models import build_policy  # torch, only now
            from shoal_extras.harnesses.lm_eval import measure

            console.print(Text(f"{args.harness} asks {printable(model)}", style="dim"))
            found[model] = measure(build_policy(config, model), asked)
    finally:  # also what is known when a later model fails
        if args.json and found:
            models = [{"model": model, "figures": list(map(vars, figures))} for model, figures in found.items()]
            print(json.dumps(json_safe({"harness": args.harness, "models": models})))
        elif found:
            console.print(harness_table(args.harness, found))
    return 0


def harness_table(harness: str, found: Mapping[str, Sequence[Figure]]) -> Table:
    """A row for each figure, and a column for each model."""
    table = Table(title=f"{harness}: ± standard error", box=None)
    for name in ("task", "metric"):
        table.add_column(name)
    for name in ("questions", *found):
        table.add_column(Text(printable(name)), justify="right", overflow="fold")
    rows: dict[tuple[str, str], dict[str, Figure]] = {}
    for model, figures in found.items():
        for figure in figures:
            rows.setdefault((figure.task, figure.metric), {})[model] = figure
    for (task, metric), of_model in rows.items():
        samples = next((str(figure.samples) for figure in of_model.values() if figure.samples is not None), "")
        cells = [of_model[model].text() if model in of_model else "-" for model in found]
        table.add_row(Text(printable(task)), Text(printable(metric)), samples, *cells)
    return table
