"""`shoal lab`: controlled experiments, from a study file to a report."""

import argparse
from pathlib import Path

from shoal.cli.command import Command
from shoal.cli.flags import add_allow_code
from shoal.signals import on_stop

LAB = Command("shoal_lab.commands", "run controlled experiments and report on them", "lab")
"""What `shoal --help` says."""
HELP = """Runs controlled experiments (arms by regimes by seeds, as a study file says) and reports on them.

  shoal lab run studies/paper-guppy.toml                   all unfinished runs, on all cores; then the report
  shoal lab run studies/paper-guppy.toml --quick           a small part of it, in minutes
  shoal lab run DIR                                        goes on with a stopped or killed study
  shoal lab run STUDY --on ray://HOST:10001                on a Ray cluster (docs/guides/ray.md)
  shoal lab report DIR                                     writes the report again; runs nothing

The format of a study file: docs/guides/lab.md."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    words = "Runs what is left of a study, then writes the report. Ctrl-C stops, and the same command goes on."
    run = commands.add_parser("run", help="run what is left of a study", description=words)
    run.set_defaults(part=_run)
    run.add_argument("study", type=Path, metavar="STUDY", help="a study file, or the folder of a study")
    run.add_argument("--out", type=Path, metavar="DIR", help="the study's folder (default: lab/NAME)")
    run.add_argument("--quick", action="store_true", help="a small part of the study, as its [quick] says")
    run.add_argument("--jobs", type=int, default=0, metavar="N", help="processes here (default: one for each core)")
    run.add_argument("--on", default="", metavar="WHERE", help="run on Ray: ray, or ray://HOST:PORT")
    add_allow_code(run)
    report = commands.add_parser("report", help="draw and write the report of a study")
    report.set_defaults(part=_report)
    report.add_argument("folder", type=Path, metavar="DIR", help="the folder of the study")


def command(args: argparse.Namespace) -> int:
    """`shoal lab ...`. Returns the exit code."""
    return int(args.part(args))


def _run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from shoal_lab.runner import open_study, run_study

    console = Console()
    study, folder = open_study(args.study, args.out, args.quick, args.allow_code)

    def stop() -> None:
        raise KeyboardInterrupt

    try:
        with on_stop(stop):
            failures = run_study(study, folder, console, args.jobs, args.on)
    except KeyboardInterrupt:
        console.print(
            f"stopped; finished runs are kept. To go on:\n  shoal lab run {folder}{' --on ' * bool(args.on)}{args.on}",
            soft_wrap=True,
        )
        return 130
    for failure in failures:
        console.print(f"failed: {failure}", style="red", markup=False)
    code = _report(argparse.Namespace(folder=folder))
    return 1 if failures else code


def _report(args: argparse.Namespace) -> int:
    from rich.console import Console

    from shoal_lab.report import write_report

    console = Console()
    path = write_report(args.folder, console)
    console.print(f"report  {path}", soft_wrap=True, highlight=False)
    return 0
