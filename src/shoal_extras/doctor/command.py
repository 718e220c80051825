"""`shoal doctor`: what this machine can do, what a run would take of it, and what to change if that is too much."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shoal.cli.flags import add_allow_code, add_settings, config_of, given_settings
from shoal.config.settings import Config

if TYPE_CHECKING:
    from rich.console import Console

HELP = """Says what this machine can do, whether a run of these settings fits into its memory, and how fast it is.

  shoal doctor                                   for the default run: four guppies
  shoal doctor --model smollm2 --suite reef --nodes 2
  shoal doctor --config my.toml --json           one JSON object

Tries each model for some seconds, in a process of its own. It makes no run folder. A model with a short name is
fetched into the cache."""

SETTINGS: Final = (
    *("rounds", "seed", "threads", "tasks.suite", "tasks.examples", "tasks.answer"),
    *("round.nodes", "round.local", "round.peers", "round.questions_per_round", "round.workers"),
    *("evaluation.every", "evaluation.questions", "evaluation.samples"),
    *(f"policy.{name}" for name in ("model", "num_generations", "max_completion_length", "device", "dtype", "engine")),
    *("policy.lora_r", "learner.optim"),
)
"""The settings that memory and time depend on."""
PACKAGES: Final = ("shoal", "torch", "transformers", "peft", "vllm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file")
    add_allow_code(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(parser, SETTINGS)


def command(args: argparse.Namespace) -> int:
    """Returns the exit code: 0 if the run fits, 1 if it does not."""
    config = config_of(args.config, given_settings(args), args.allow_code)
    from rich.console import Console

    from shoal.policy.fetch import fetch_models
    from shoal.runs.choices import choose  # torch, only now

    fetch_models(config)
    console = Console(stderr=args.json, highlight=False)
    with console.status("trying each model"):
        config, choices = choose(config)
        report = examine(config)
    if args.json:
        print(json.dumps(report))
    else:
        show(console, report, choices, shlex.join(["shoal", "run", *args.words[1:]]))
    return 0 if report["run"]["fits"] else 1


def examine(config: Config) -> dict[str, Any]:
    """The whole report. Raises `UserError` for a model, a device or a suite that is not there."""
    import psutil

    from shoal.policy.device import free_bytes, place
    from shoal.runs.machine import expected_workers, use_threads
    from shoal_extras.doctor import forecast

    use_threads(config)
    placement = place(config.policy.device, config.policy.dtype)
    here = 0 if placement.device.type == "cuda" else psutil.Process().memory_info().rss
    free, workers = free_bytes(placement.device) + here, expected_workers(config)
    trials = [forecast.try_apart(config, name) for name in config.local_models]
    peak = forecast.expected_peak(config, trials, workers) + (here if workers else 0)
    fits = peak * forecast.MARGIN <= free
    models = [
        {name: vars(trial)[name] for name in ("model", "parameters", "trained")}
        | {"nodes": forecast.nodes_of(config, trial.model)}
        | {"trial": {"decode_tokens_per_second": trial.decode, "update_tokens_per_second": trial.update}}
        for trial in trials
    ]
    advice = [] if fits else _advice(config, workers)
    run = {"expected_peak_bytes": peak, "free_bytes": free, "fits": fits, "advice": advice}
    return {"machine": _machine(config, free), "models": models, "run": run}


def _advice(config: Config, workers: int) -> list[str]:
    """What takes less memory, from what changes least to what changes most."""
    advice = {
        "--workers 0": workers > 0,
        "--optim adafactor": config.learner.optim.startswith("adamw"),
        "--lora-r 16": not config.policy.lora_r,
        f"--nodes {config.round.nodes // 2}": config.round.nodes > 1,
        "a smaller model": True,
    }
    return [change for change, is_left in advice.items() if is_left]


def _machine(config: Config, free: int) -> dict[str, Any]:
    import torch

    from shoal.policy.device import place
    from shoal.runs.machine import usable_cores

    placement = place(config.policy.device, config.policy.dtype)
    cuda = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    versions: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), **versions},
        "device": str(placement.device),
        "dtype": str(placement.dtype).removeprefix("torch."),
        "cuda": [{"name": device.name, "bytes": device.total_memory} for device in cuda],
        "free_memory_bytes": free,
        "free_disk_bytes": shutil.disk_usage(Path.cwd()).free,
    }


def show(console: Console, report: dict[str, Any], choices: Sequence[str], command: str) -> None:
    """Prints the report for people. `command`: what runs with these settings."""
    from rich.table import Table
    from rich.text import Text

    from shoal.display.text import print_next

    machine, run = report["machine"], report["run"]
    gpus = [f"{gpu['name']} ({gpu['bytes'] / 1e9:.0f} GB)" for gpu in machine["cuda"]] or ["no CUDA"]
    rows = [
        ("system", f"{machine['system']}, cores: {machine['cores']}, threads: {machine['threads']}"),
        ("versions", ", ".join(f"{name} {found or 'is missing'}" for name, found in machine["versions"].items())),
        ("device", f"{machine['device']} in {machine['dtype']} ({', '.join(gpus)})"),
        ("free", f"{_gb(machine['free_memory_bytes'])} of memory, {_gb(machine['free_disk_bytes'])} of disk"),
    ]
    for model in report["models"]:
        rates = [f"{what.partition('_')[0]} {rate:,.0f} tokens/s" for what, rate in model["trial"].items()]
        sizes = f"{model['parameters']:,} parameters, of which {model['trained']:,} are trained"
        rows.append((model["model"], f"{sizes}; nodes: {model['nodes']}; {', '.join(rates)}"))
    rows += [("" if number else "choices", line) for number, line in enumerate(choices)]
    grid = Table.grid(padding=(0, 2))
    for name, text in rows:
        grid.add_row(Text(name, "bold"), Text(text, overflow="fold"))
    console.print(grid)
    needs = f"a run takes about {_gb(run['expected_peak_bytes'])} at its peak, and {_gb(run['free_bytes'])} are free."
    if run["fits"]:
        console.print(f"It fits: {needs}", style="green")
        print_next(console, {command: "with the same settings"})
    else:
        console.print(f"It does not fit with 15 % to spare: {needs}", style="red")
        console.print(f"Take {', '.join(run['advice'])}.", soft_wrap=True)


def _gb(size: float) -> str:
    return f"{size / 1e9:.2f} GB"
