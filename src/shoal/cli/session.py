"""A command from beginning to end: folder, display, Ctrl-C, and what is printed last."""

from __future__ import annotations

import gc
import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from shoal.cli.display import Display, make_display
from shoal.config.settings import ENDLESS, Config
from shoal.errors import UserError
from shoal.evaluation.pass_at_k import Estimate, Evaluation, evaluate
from shoal.parallel.rank_zero import LedSwarm, LedVerifier
from shoal.parallel.ranks import Ranks, joined
from shoal.policy.control import ControlText
from shoal.rollout import seed_of
from shoal.runs.curves import draw_curves
from shoal.runs.folder import CONFIG, CURVES, RunFolder, clean, run_metrics, write_atomically

if TYPE_CHECKING:
    from shoal.identity.keys import Identity
    from shoal.runs.run import Watcher


def run_session(config: Config, out: Path | None, resume: Path | None, quiet: bool) -> int:
    """`shoal run`. Returns the exit code: 0, or 130 when it was stopped before its last round."""
    with joined(config.policy.device) as ranks:
        if ranks.leader:
            return _lead(config, out, resume, quiet, ranks)
        return _follow(config, ranks)


def join_session(config: Config, out: Path | None, resume: Path | None, quiet: bool) -> int:
    """`shoal join`: one node in a swarm that spans processes. Returns the exit code as `run_session` does."""
    from shoal.identity.keys import Identity, identity_path
    from shoal.identity.lock import only_node
    from shoal.runs.join import check_network  # the network, only now

    check_network(config)

    with joined(config.policy.device) as ranks:
        if ranks.leader:
            identity = Identity.load_or_create(path := identity_path())
            with only_node(path, config.network.swarm):
                return _lead(config, out, resume, quiet, ranks, identity)
        return _follow(config, ranks, ranks.agreed(""))


def _lead(
    config: Config,
    out: Path | None,
    resume: Path | None,
    quiet: bool,
    ranks: Ranks,
    identity: Identity | None = None,
) -> int:
    """The rank that writes and shows: the only one, mostly. `identity`: of a node that joins others."""
    console = Console()
    folder = RunFolder.open(resume) if resume else RunFolder.create(out or _new_folder(), config.resolved().to_toml())
    with folder:
        latest = folder.latest()
        checkpoint = latest[1] if latest else None
        if resume:  # without a checkpoint, when it was killed before the first: from the beginning
            folder.rewind(latest[0] if latest else -1)
            write_atomically(folder.path / CONFIG, config.to_toml().encode())
        nodes = [identity.name] if identity else [f"node-{n}" for n in range(1, config.swarm.nodes + 1)]
        kept = [path.name for path in checkpoint.iterdir() if path.is_dir()] if checkpoint else []
        if kept and nodes[0] not in kept:
            raise UserError(
                f"{folder.path} has nothing of {nodes[0]}: go on with `shoal {'run' if identity else 'join'} --resume`"
                + (", or with the identity that it was begun with (`shoal id`)" if identity else "")
            )
        if identity:
            ranks.agreed(identity.name)
        ranks.agreed(checkpoint)
        display = make_display(console, config.rounds, nodes, quiet, run_metrics(folder.path))
        with ExitStack() as stack:
            stack.enter_context(display)
            display.status("starting")
            watch: Watcher = display
            member = rewards = None
            from shoal.runs.run import Member, Run  # torch, only now

            if identity:
                from shoal.cli.status_reporter import StatusReporter  # the network, only now
                from shoal.runs.join import Joined

                display.status(f"joining {config.network.swarm}")
                from shoal.rewards import rewards_of
                from shoal.runs.models import place_rank
                from shoal.sandbox.verifier import Verifier

                verifier = stack.enter_context(Verifier(config.tasks))  # the run and the network take their own
                rewards = rewards_of(config, verifier, place_rank(config, ranks))
                if rewards:
                    stack.enter_context(rewards)
                place = stack.enter_context(closing(Joined(config, identity, rewards)))
                watch = stack.enter_context(closing(StatusReporter(display, place, folder.path, config.swarm.external)))
                swarm = LedSwarm(place.link, ranks) if ranks.size > 1 else place.link
                member = Member(identity.name, swarm, place.tell, place.panel)
            run = Run(config, folder, watch, checkpoint, ranks, member, rewards=rewards)
            if identity:
                place.admission.control = ControlText(run.control_strings())
                # A full collection would walk over all that was imported, and hold up what comes in.
                gc.collect()
                gc.freeze()
            with closing(run), _stoppable(display) as stop:
                run.go(stop)
        draw_curves(run_metrics(folder.path), folder.path / CURVES, _title(config))
        done = run.round >= config.rounds
        _print_gains(console, folder, f"{run.placement}" + (f", {ranks.size} ranks" if ranks.size > 1 else ""))
        if not done:
            limit = f" of {config.rounds}" if config.rounds < ENDLESS else ""
            console.print(f"stopped after round {run.round}{limit}; to go on:")
            command = "join" if identity else "run"
            console.print(f"  shoal {command} --resume {folder.path}", soft_wrap=True, highlight=False)
    return 0 if done else 130


def _follow(config: Config, ranks: Ranks, name: str = "") -> int:
    """Any other rank: it computes its part, in silence. `name`: of a node that joins others."""
    checkpoint = ranks.agreed(None)
    silent = make_display(Console(quiet=True), config.rounds, [], True, [])
    from shoal.runs.run import Member, Run

    member = Member(name, LedSwarm(None, ranks)) if name else None
    run = Run(config, None, silent, checkpoint, ranks, member)
    with closing(run), _stoppable(silent) as stop:
        run.go(stop)
    return 0 if run.round >= config.rounds else 130


def eval_session(config: Config, model: str, ks: Sequence[int] | None, as_json: bool) -> int:
    """`shoal eval`. Returns the exit code."""
    config = config.resolved()
    number, samples = config.evaluation.questions, config.evaluation.samples
    assert isinstance(number, int)
    assert isinstance(samples, int)
    ks = sorted({1, *(ks or [samples])})
    if not 1 <= ks[0] <= ks[-1] <= samples:
        raise UserError(f"pass@{ks[-1] if ks[-1] > samples else ks[0]} needs --samples {max(ks)} or more, and K >= 1")
    with joined(config.policy.device) as ranks:
        console = Console(stderr=as_json, quiet=not ranks.leader)
        with console.status(f"asking {model}"):
            from shoal.runs.models import build_policy  # torch, only now
            from shoal.sandbox.verifier import Verifier
            from shoal.tasks import Tasks

            tasks = Tasks(config.tasks)
            questions = tasks.held_out(number, config.seed)
            policy = build_policy(config, model, ranks)
            with Verifier(config.tasks) as verifier:
                scorer = LedVerifier(verifier, ranks)
                result = evaluate(policy, scorer, questions, samples, seed_of(config.seed, "evaluate"))
    if not ranks.leader:
        return 0
    if result.unanswered:  # of an endpoint
        lost = f"{result.unanswered} questions were not answered and are left out ({policy.trouble})"
        if not any(result.correct.values()):
            raise UserError(lost)
        console.print(lost, soft_wrap=True, highlight=False, markup=False)
    if as_json:
        print(json.dumps(clean(_evaluation_object(result, ks, model, config))))
    else:
        console.print(_evaluation_table(result, ks, model))
    return 0


@contextmanager
def _stoppable(display: Display) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; a second one interrupts."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        display.note("stopping after this round; Ctrl-C again stops at once and loses it")

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _new_folder() -> Path:
    """`runs/DATE-TIME`, with a number behind it where there is one already."""
    name = Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    candidates = [name, *(name.with_name(f"{name.name}-{number}") for number in range(2, 100))]
    return next(path for path in candidates if not path.exists())


def _title(config: Config) -> str:
    tasks = "own tasks" if config.tasks.tasks else config.tasks.suite
    models = " + ".join(Path(name.partition("://")[2] or name).name for name in config.policy.model)
    return f"{config.swarm.nodes} nodes of {models} on {tasks}, I = {config.swarm.local}, J = {config.swarm.external}"


def _print_gains(console: Console, folder: RunFolder, placement: object) -> None:
    """What the run gave, mean over its nodes."""
    rows = run_metrics(folder.path)
    evaluated = [row["round"] for row in rows if row.get("eval/pass@1") is not None]
    rounds = max((row["round"] for row in rows), default=0)
    if rounds and evaluated:
        first, last = _means(rows, "eval/pass@1", (min(evaluated),) * 2, (max(evaluated),) * 2)
        times = f", {last / first:.1f} times" if first else ""
        tenth = max(1, rounds // 10)
        early, late = _means(rows, "reward/local", (1, tenth), (rounds - tenth + 1, rounds))
        console.print(f"held-out pass@1  {first:.3f} -> {last:.3f}{times} (round {min(evaluated)} to {max(evaluated)})")
        console.print(f"local reward     {early:.3f} -> {late:.3f} (first and last {tenth} rounds)")
        console.print(f"{rounds} rounds on {placement}")
    console.print(f"folder  {folder.path}", soft_wrap=True, highlight=False)
    console.print(f"curves  {folder.path / CURVES}", soft_wrap=True, highlight=False)


def _means(rows: Sequence[Mapping[str, Any]], key: str, *spans: tuple[int, int]) -> list[float]:
    """The mean in each span of rounds, over the nodes that have a value in all: an endpoint that died has none."""
    known = [row for row in rows if row.get(key) is not None]
    within = [[row for row in known if first <= row["round"] <= last] for first, last in spans]
    nodes = set.intersection(*({row["node"] for row in span} for span in within))
    values = ([row[key] for row in span if row["node"] in nodes] for span in within)
    return [fmean(figures) if figures else 0.0 for figures in values]


def _evaluation_object(result: Evaluation, ks: Sequence[int], model: str, config: Config) -> dict[str, Any]:
    def estimates(task: str | None) -> dict[str, Any]:
        found = {f"pass@{k}": result.pass_at(k, task) for k in ks}
        return {name: {"value": e.value, "low": e.low, "high": e.high} for name, e in found.items()}

    return {
        "model": model,
        "suite": None if config.tasks.tasks else config.tasks.suite,
        "seed": config.seed,
        "samples": result.samples,
        "interval": "Wilson 95 %, over questions",
        "unanswered": result.unanswered,
        "all": {"questions": sum(map(len, result.correct.values())), **estimates(None)},
        "tasks": {task: {"questions": len(c), **estimates(task)} for task, c in result.correct.items()},
    }


def _evaluation_table(result: Evaluation, ks: Sequence[int], model: str) -> Table:
    def cell(estimate: Estimate) -> str:
        return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"

    table = Table(title=f"{model}: held-out, {result.samples} samples a question, 95 % Wilson over questions", box=None)
    table.add_column("task")
    table.add_column("questions", justify="right")
    for k in ks:
        table.add_column(f"pass@{k}", justify="right")
    for task, counts in result.correct.items():
        table.add_row(task, str(len(counts)), *(cell(result.pass_at(k, task)) for k in ks))
    table.add_section()
    total = sum(map(len, result.correct.values()))
    table.add_row("all", str(total), *(cell(result.pass_at(k)) for k in ks), style="bold")
    return table
