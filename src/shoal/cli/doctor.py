"""`shoal doctor`: what this machine can do, what a run would take of it, and what to change where it is too much."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import math
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shoal.cli.flags import add_allow_code, add_settings, config_of, given_settings
from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from shoal.learn.memory import Sizes, Work
    from shoal.policy.device import Placement
    from shoal.policy.language import LanguagePolicy
    from shoal.rollout import Question

HELP = """Says what this machine can do, and whether a run of these settings fits into its memory.

  shoal doctor                                   for the default run: four guppies
  shoal doctor --model HuggingFaceTB/SmolLM2-135M-Instruct --suite paper --nodes 2
  shoal doctor --config my.toml --json           one JSON object

Loads each model once, counts what an update keeps, and tries a few seconds of it. Nothing is written."""

SETTINGS: Final = (
    *("seed", "threads", "tasks.suite", "swarm.nodes", "swarm.local", "swarm.external"),
    *("evaluation.questions", "evaluation.samples"),
    *(f"policy.{name}" for name in ("model", "num_generations", "max_completion_length", "device", "dtype", "engine")),
    "policy.lora_r",
    *(f"learner.{name}" for name in ("optim", "beta", "tokens_per_micro_batch")),
)
"""Settings that memory depends on."""
MARGIN: Final = 1.15
"""A run fits where this times its expected peak is free: the estimate may be that much off."""
ROUNDS: Final = 8
"""Rounds whose questions are looked at for their lengths."""
TRIAL_TOKENS: Final = 12
"""Tokens of each completion of the trial, at most."""
EXTRAS: Final = {"peft": "lora", "bitsandbytes": "8bit", "vllm": "vllm"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file")
    add_allow_code(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(parser, SETTINGS)


def command(args: argparse.Namespace) -> int:
    """`shoal doctor`. Returns the exit code: 0 where the run fits, 1 where it does not."""
    config = config_of(args.config, given_settings(args), args.allow_code).resolved()
    from rich.console import Console

    console = Console(stderr=args.json)
    with console.status("looking"):
        report = examine(config)
    if args.json:
        print(json.dumps(report))
    else:
        show(console, report)
    return 0 if report["run"]["fits"] else 1


def examine(config: Config) -> dict[str, Any]:
    """All that is found out. Raises `UserError` for a model, a device or a suite that is not there."""
    from shoal.learn.memory import estimate
    from shoal.policy.device import place
    from shoal.policy.free_memory import free_bytes
    from shoal.runs.models import use_threads
    from shoal.tasks import Tasks

    use_threads(config)
    placement = place(config.policy.device, config.policy.dtype)
    free = free_bytes(placement.device) + (0 if placement.device.type == "cuda" else _resident())
    local = [name for name in dict.fromkeys(config.policy.model) if not is_endpoint(name)]
    tasks = Tasks(config.tasks)
    program = _program(config)
    models: list[tuple[Sizes, Work]] = []
    shown: list[dict[str, Any]] = []
    for name in local:
        policy = _adapted(config, name, placement)
        models.append(_measures(config, policy, tasks, name))
        sizes, work = models[-1]
        shown.append({"model": name, "parameters": sizes.parameters, "trained": sizes.trained, "nodes": work.nodes})
        shown[-1]["gradient_checkpointing"] = work.checkpointed
        alone = sum(estimate([(sizes, replace(work, nodes=1))], program).values())
        shown[-1]["trial"] = _trial(config, policy, tasks) if alone * MARGIN <= free else None
        del policy
    parts = estimate(models, program)
    peak = sum(parts.values())
    fits = peak * MARGIN <= free
    return {
        "machine": _machine(config, placement, free),
        "models": shown,
        "run": {
            "expected_peak_bytes": peak,
            "parts_bytes": parts,
            "free_bytes": free,
            "fits": fits,
            "advice": [] if fits else [_flags(change) for change in advise(config, models, program, free)],
        },
    }


def expected(config: Config) -> dict[str, int]:
    """Bytes at the peak of a run, by what takes them: without a trial."""
    from shoal.learn.memory import estimate
    from shoal.policy.device import place
    from shoal.tasks import Tasks

    config = config.resolved()
    placement, tasks, program = place(config.policy.device, config.policy.dtype), Tasks(config.tasks), _program(config)
    names = [name for name in dict.fromkeys(config.policy.model) if not is_endpoint(name)]
    return estimate([_measures(config, _adapted(config, n, placement), tasks, n) for n in names], program)


# What a run would do


def _adapted(config: Config, name: str, placement: Placement) -> LanguagePolicy:
    """A policy as a node of the run has it, with the adapters that are to be trained."""
    from shoal.policy.language import LanguagePolicy
    from shoal.policy.loading import load
    from shoal.policy.lora import add_adapters
    from shoal.runs.models import sampling_of

    loaded = load(name, placement.device)
    if config.policy.lora_r:
        loaded = add_adapters(loaded, config.policy.lora_r, config.seed)
    return LanguagePolicy(loaded, sampling_of(config), placement)


def _measures(config: Config, policy: LanguagePolicy, tasks: Any, name: str) -> tuple[Sizes, Work]:
    """The model's sizes, and what the run does with it: on the questions of its first rounds, with answers as long as
    they may get."""
    from shoal.learn.checkpointing import worth_checkpointing
    from shoal.learn.learner import token_budget
    from shoal.learn.memory import Sizes, Work
    from shoal.policy.language import CACHE_BYTES

    models, swarm, evaluation = config.policy.model, config.swarm, config.evaluation
    samples = evaluation.samples
    assert isinstance(samples, int)
    budget = token_budget(config.learner.tokens_per_micro_batch, policy.placement.device)
    rounds = [tasks.draw(swarm.local + swarm.external, config.seed, "node-1", r + 1) for r in range(ROUNDS)]
    held_out = [q for group in tasks.held_out(evaluation.questions, config.seed).values() for q in group]
    asked = [(r[: swarm.local], config.policy.num_generations) for r in rounds] + [(held_out, samples)]
    length = policy.sampling.max_completion_length
    work = Work(
        nodes=sum(models[number % len(models)] == name for number in range(swarm.nodes)),
        optim=config.learner.optim,
        reference=config.learner.beta > 0,
        checkpointed=worth_checkpointing(policy.lm.model, policy.placement, budget),
        passes=sorted({shape for questions in rounds for shape in _passes(config, policy, questions, budget)}),
        decoded=[(len(qs), max(len(policy.prompt_ids(q)) for q in qs), each) for qs, each in asked if qs],
        completion_length=length,
        cache_limit=CACHE_BYTES,
    )
    return Sizes.of(policy.lm.model, policy.placement), work


def _passes(
    config: Config, policy: LanguagePolicy, questions: Sequence[Question], budget: int
) -> Iterator[tuple[int, int, int]]:
    """(rows, positions, trained tokens) of the micro-batches of an update on `questions`."""
    from shoal.learn.batch import Trained, make_rows, micro_batches

    answer = Trained([0] * policy.sampling.max_completion_length, 0.0, 0.0, 0)
    answers = [answer] * config.policy.num_generations
    rows = [row for question in questions for row in make_rows(policy.prompt_ids(question), answers, budget)]
    for batch in micro_batches(rows, budget, policy.placement.device):
        yield (*batch.input_ids_RS.shape, len(batch.targets_T))


def _program(config: Config) -> int:
    """Bytes that a run's process takes without its models: measured, after all is imported and has run once. On a GPU
    0, since that is not the memory that runs out."""
    import gc
    import importlib

    from shoal.config.policy import GUPPY
    from shoal.policy.device import place
    from shoal.runs.curves import draw_curves

    if place(config.policy.device).device.type == "cuda":
        return 0
    importlib.import_module("pyarrow.parquet")  # of the run's folder
    small = Config.model_validate({"policy": {"model": [GUPPY], "device": config.policy.device}}).resolved()
    policy = _adapted(small, GUPPY, place(config.policy.device))
    from shoal.tasks import Tasks

    _trial(small, policy, Tasks(small.tasks))
    with tempfile.TemporaryDirectory() as folder:
        draw_curves([{"round": 1, "node": "node-1", "eval/pass@1": 0.5}], Path(folder) / "curves.png", "")
    del policy
    gc.collect()
    return _resident()


def _resident() -> int:
    """Bytes of memory that this process has now."""
    import resource
    import sys

    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # another system, which tells the most that it ever had: in bytes on macOS
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _trial(config: Config, policy: LanguagePolicy, tasks: Any) -> dict[str, float]:
    """Tokens a second of decoding and of an update, tried on one question with short answers. Changes no weights."""
    from shoal.learn.learner import GRPOLearner
    from shoal.policy.language import LanguagePolicy
    from shoal.rollout import Rollout, Scored

    sampling = replace(policy.sampling, max_completion_length=min(TRIAL_TOKENS, policy.sampling.max_completion_length))
    short = LanguagePolicy(policy.lm, sampling, policy.placement)
    questions = tasks.draw(min(4, max(1, config.swarm.local)), config.seed, "node-1", 1)
    start = time.perf_counter()
    groups = short.generate(questions, max(2, config.policy.num_generations), config.seed)
    decoded = time.perf_counter()
    scored = [
        Scored(Rollout(q.id, q.hash, group, "doctor", 0), q, tuple(float(i % 2) for i in range(len(group))))
        for q, group in zip(questions, groups, strict=True)
    ]
    learner = GRPOLearner(short, config.learner, config.external, 0.0)
    before = time.perf_counter()
    learner.update(scored)
    seconds = time.perf_counter() - before
    answers = sum(len(completion.token_ids or ()) for group in groups for completion in group)
    prompts = sum(len(short.prompt_ids(question)) for question in questions)
    return {
        "decode_tokens_per_second": answers / (decoded - start),
        "update_tokens_per_second": (prompts + answers) / seconds,
    }


# What to change

Change = dict[str, Any]
"""Settings by their dotted names."""


def advise(config: Config, models: Sequence[tuple[Sizes, Work]], program: int, free: int) -> list[Change]:
    """The fewest changes that make the run fit, at most three alternatives, the gentlest first. None: nothing helps."""
    choices = _choices(config, models)
    for count in range(1, len(choices) + 1):
        found: list[Change] = []
        for names in itertools.combinations(choices, count):
            for values in itertools.product(*(choices[name] for name in names)):  # gentlest values first
                change = dict(zip(names, values, strict=True))
                if _expected_after(config, models, program, change) * MARGIN <= free:
                    found.append(change)
                    break
        if found:
            return found[:3]
    return []


def _choices(config: Config, models: Sequence[tuple[Sizes, Work]]) -> dict[str, list[Any]]:
    """What may be changed and to what, the gentlest first: those that change no figure, then those that do."""
    largest = max((R * S for _, work in models for R, S, _ in work.passes), default=0)
    choices: dict[str, list[Any]] = {
        "learner.tokens_per_micro_batch": [n for n in (4096, 2048, 1024, 512, 256) if n < largest],
        "learner.optim": ["adafactor"] if config.learner.optim == "adamw" else [],
        "policy.lora_r": [] if config.policy.lora_r else [16],
        "swarm.nodes": list(range(config.swarm.nodes - 1, 0, -1)),
    }
    return {name: values for name, values in choices.items() if values}


def _expected_after(config: Config, models: Sequence[tuple[Sizes, Work]], program: int, change: Change) -> int:
    """Bytes at the peak with `change`. With fewer nodes, the first ones are left."""
    from shoal.learn.memory import estimate

    names = [name for name in dict.fromkeys(config.policy.model) if not is_endpoint(name)]
    nodes = change.get("swarm.nodes", config.swarm.nodes)
    changed = []
    for name, (sizes, work) in zip(names, models, strict=True):
        count = sum(config.policy.model[n % len(config.policy.model)] == name for n in range(nodes))
        if "learner.tokens_per_micro_batch" in change:
            work = replace(work, passes=_cut(work.passes, change["learner.tokens_per_micro_batch"]))
        work = replace(
            work,
            nodes=count,
            optim=change.get("learner.optim", work.optim),
        )
        if count:
            changed.append((sizes.with_adapters(change["policy.lora_r"]) if "policy.lora_r" in change else sizes, work))
    return sum(estimate(changed, program).values())


def _cut(passes: Sequence[tuple[int, int, int]], budget: int) -> list[tuple[int, int, int]]:
    """Micro-batches within `budget`: fewer rows, and where one alone is longer than that, a shorter one."""
    cut = []
    for R, S, T in passes:
        rows = max(1, min(R, budget // S))
        length = min(S, budget) if rows == 1 else S
        cut.append((rows, length, math.ceil(T * rows * length / (R * S))))
    return cut


def _flags(change: Change) -> str:
    """A change as it is given on the command line."""
    return " ".join(
        f"--{name.rpartition('.')[2].replace('_', '-')} {str(value).lower()}" for name, value in change.items()
    )


# The machine


def _machine(config: Config, placement: Placement, free: int) -> dict[str, Any]:
    import torch
    import transformers

    from shoal import __version__
    from shoal.policy.device import place
    from shoal.policy.free_memory import free_ram

    cuda = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    why = "asked for" if config.policy.device != "auto" else "the best that is there"
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": config.threads or os.cpu_count() or 1,
        "versions": {
            "shoal": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "extras": {name: _version(name) for name in EXTRAS},
        "device": str(placement.device),
        "device_reason": why,
        "cuda": [{"name": device.name, "bytes": device.total_memory} for device in cuda],
        "mps": torch.backends.mps.is_available(),
        "native_bfloat16": _has_bfloat16(place, str(placement.device)),
        "dtype": str(placement.dtype).removeprefix("torch."),
        "free_memory_bytes": free,
        "free_ram_bytes": free_ram(),
        "free_disk_bytes": shutil.disk_usage(Path.cwd()).free,
    }


def _has_bfloat16(place: Any, device: str) -> bool:
    try:
        place(device, "bfloat16")
    except UserError:
        return False
    return True


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str | None:
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


# The screen


def show(console: Console, report: dict[str, Any]) -> None:
    """The report for people."""
    from rich.markup import escape
    from rich.table import Table

    machine, run = report["machine"], report["run"]

    def grid(title: str) -> Table:
        table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False)
        table.add_column(no_wrap=True, min_width=14)
        table.add_column(overflow="fold")
        return table

    table = grid("This machine")
    table.add_row("system", machine["system"])
    table.add_row("processor", f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads used")
    table.add_row("versions", ", ".join(f"{name} {number}" for name, number in machine["versions"].items()))
    table.add_row("extras", ", ".join(_extra(name, found) for name, found in machine["extras"].items()))
    others = [f"{gpu['name']} ({gpu['bytes'] / 1e9:.0f} GB)" for gpu in machine["cuda"]] or ["no CUDA"]
    others += [] if machine["mps"] else ["no MPS"]
    table.add_row("device", f"{machine['device']}, {machine['device_reason']} ({', '.join(others)})")
    native = "in hardware" if machine["native_bfloat16"] else "not in hardware"
    table.add_row("dtype", f"{machine['dtype']} (bfloat16 is {native})")
    table.add_row("free", f"{_gb(machine['free_memory_bytes'])} of memory, {_gb(machine['free_disk_bytes'])} of disk")
    console.print(table)
    for model in report["models"]:
        console.print()
        console.print(_model_table(grid(escape(model["model"])), model))
    console.print()
    table = Table(title="Expected peak of a run", title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column(min_width=14)
    table.add_column(justify="right")
    for name, size in run["parts_bytes"].items():
        if size:
            table.add_row(name.replace("_", " "), _gb(size))
    table.add_section()
    table.add_row("all", _gb(run["expected_peak_bytes"]), style="bold")
    console.print(table)
    console.print()
    free = _gb(run["free_bytes"])
    if run["fits"]:
        console.print(f"It fits: {free} are free.", style="green", highlight=False)
        return
    console.print(
        f"It does not fit: {free} are free, and an estimate wants 15 % to spare.", style="red", highlight=False
    )
    for number, flags in enumerate(run["advice"]):
        console.print(f"{'or' if number else 'take'}  {flags}", highlight=False, soft_wrap=True)
    if not run["advice"]:
        console.print("No settings make it fit: take a smaller model.", highlight=False)


def _model_table(table: Any, model: dict[str, Any]) -> Any:
    table.add_row("parameters", f"{model['parameters']:,}, of which {model['trained']:,} are trained")
    table.add_row("nodes", str(model["nodes"]))
    table.add_row("layers", "computed again in the backward pass" if model["gradient_checkpointing"] else "kept whole")
    if model["trial"] is None:
        table.add_row("speed", "not tried: it does not fit")
    else:
        decode, update = (model["trial"][f"{what}_tokens_per_second"] for what in ("decode", "update"))
        table.add_row("speed", f"about {decode:,.0f} tokens/s decoding, {update:,.0f} tokens/s updating (a trial)")
    return table


def _extra(name: str, found: str | None) -> str:
    return f"{name} {found}" if found else f"no {name} (pip install 'shoal\\[{EXTRAS[name]}]')"  # no markup


def _gb(size: float) -> str:
    return f"{size / 1e9:.2f} GB"
