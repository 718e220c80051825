"""A run from beginning to end: its folder, its nodes, its rounds.

    outcome = execute(Config(rounds=20), out=Path("runs/one"))

`shoal run` and `shoal join` are this with a display; `shoal.run` and `shoal.join` are this without.
"""

import gc
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal.config.load import read_config
from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity, identity_path
from shoal.identity.lock import only_node
from shoal.parallel.rank_zero import RankZeroSwarm
from shoal.parallel.ranks import ALONE, Ranks
from shoal.policy.fetch import fetch_models
from shoal.runs.build import Nodes, SwarmNode, shortens
from shoal.runs.choices import choose
from shoal.runs.data import check_data
from shoal.runs.disk import write_atomically
from shoal.runs.folder import CONFIG, RunFolder, read_metrics
from shoal.runs.run import Run
from shoal.runs.trackers import makers_of, started
from shoal.runs.watcher import Watcher

Rows = Sequence[Mapping[str, Any]]
STRANGERS: Final = (
    "strangers      of a peer's right answer this node learns only the words that are needed or that it says too; who "
    "plants others teaches it nothing for a time. Takes 1 to 6 % of a round (among friends: --shorten off)"
)


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    folder: Path
    round: int
    """Rounds done."""
    finished: bool
    """Whether that was the last round; otherwise the run can be resumed."""
    device: str
    warnings: tuple[str, ...] = ()
    """What was wrong during the run, such as a task whose scorer failed."""
    seconds: float = 0.0
    hopeless: bool = False
    """Whether it ended since nothing could be learned."""


def execute(
    config: Config,
    out: Path | None = None,
    resume: Path | None = None,
    identity: Identity | None = None,
    watch: Callable[[list[str], Rows], Watcher] = lambda names, rows: Watcher(),
    stop: threading.Event | None = None,
    ranks: Ranks = ALONE,
    ends: bool = False,
    doubts: Sequence[str] = (),
) -> Outcome:
    """Runs all rounds, or until `stop` is set, or, if it `ends`, until it is plain that nothing can be learned. Only
    rank zero calls this; other ranks call `follow`.

    `out`: the folder of a new run (default: runs/DATE-TIME); `resume`: of a run to go on with. `identity`: of a node
    that joins a swarm over the network; None: all nodes are in this process. `watch`: makes the watcher, from the
    nodes' names and the metrics so far. `doubts`: warnings about its data. Raises `UserError`.
    """
    start = time.monotonic()
    stop = stop or threading.Event()
    config, choices = choose(config, ranks) if not resume else (config, [])
    folder = RunFolder.open(resume) if resume else RunFolder.create(out or new_folder(), config.to_toml())
    with folder, ExitStack() as stack:
        if identity:
            stack.enter_context(only_node(identity_path(), config.network.name))
        latest, faults = folder.intact()
        checkpoint = latest[1] if latest else None
        if resume and latest is None and folder.rounds and read_config(resume / CONFIG).get("checkpoint_every") == 0:
            raise UserError(f"{resume} has no checkpoint (checkpoint_every = 0), so it cannot go on: start a new run")
        names = [identity.name] if identity else list(config.node_models)
        if checkpoint:
            _check_names(folder, checkpoint, names, identity)
        if resume:  # a run that was killed before its first checkpoint begins again
            faults += folder.rewind(latest[0] if latest else -1)
        if identity:
            ranks.broadcast(identity.name)
        ranks.broadcast((checkpoint, config))
        watcher = stack.enter_context(watch(names, read_metrics(folder.path)))
        if identity and shortens(config, joins=True):
            choices.append(STRANGERS)
        if identity and config.network.carrier == "place":
            how = "marked as not for archives" if config.network.not_kept else "for all to learn from (CC0-1.0)"
            kept = f"for 30 days, up to {config.network.keep_mb} MB, signed by its key, {how}"
            choices.append(f"place          {config.network.connect[-1]} keeps what this node shares {kept}")
        for line in [*choices, f"window         shoal watch {shlex.quote(str(folder.path))}"]:
            watcher.say(line)
        for fault in faults:
            watcher.warn(fault)
        watcher.status("starting")
        if identity is None:
            nodes = stack.enter_context(closing(Nodes(config, watcher.status, checkpoint, ranks)))
        else:
            nodes = _join(config, folder, watcher, checkpoint, ranks, identity, stack)
        group = config.network.name if identity else ""
        trackers = stack.enter_context(started(config, folder.path, names, group))
        run = Run(nodes, folder, watcher, checkpoint, trackers)
        run.record.doubts = doubts
        run.record.warn()
        if resume:  # with the rounds, threads and addresses that have changed
            write_atomically(folder.path / CONFIG, config.to_toml().encode())
        run.go(stop, ends)
        run.record.close_trackers()
        device = f"{nodes.placement}" + (f", {ranks.size} ranks" if ranks.size > 1 else "")
        warnings = tuple(run.record.warnings.values())
        hopeless, seconds = ends and run.record.diagnosis.hopeless, time.monotonic() - start
        return Outcome(folder.path, nodes.round, run.finished, device, warnings, seconds, hopeless)


def ready(config: Config, joins: bool) -> None:
    """Puts the models of `config` on this machine. `joins`: the node joins a swarm over the network. Raises `UserError`
    for a network that cannot be used, models that cannot be fetched, data that nothing can be learned from and trackers
    that there are not."""
    makers_of(config)
    if joins:
        from shoal.membership.settings import check_network  # the network, only now

        check_network(config)
    check_data(config, trains=True)
    fetch_models(config)


def follow(config: Config, ranks: Ranks, stop: threading.Event, name: str = "") -> Outcome:
    """The part of any other rank: it computes with rank zero and writes nothing. `name`: of a node that joins."""
    checkpoint, config = ranks.broadcast((None, config))
    member = SwarmNode(name, RankZeroSwarm(None, ranks)) if name else None
    with closing(Nodes(config, checkpoint=checkpoint, ranks=ranks, member=member)) as nodes:
        run = Run(nodes, None, Watcher(), checkpoint)
        run.go(stop)
        return Outcome(Path(), nodes.round, run.finished, f"{nodes.placement}")


def _join(
    config: Config,
    folder: RunFolder,
    watcher: Watcher,
    checkpoint: Path | None,
    ranks: Ranks,
    identity: Identity,
    stack: ExitStack,
) -> Nodes:
    """One node with a place in a swarm over the network, whose state is reported."""
    from shoal.membership.connection import SwarmConnection  # the network, only now
    from shoal.membership.settings import public_name
    from shoal.policy.language import LanguagePolicy
    from shoal.rewards import rewards_of
    from shoal.runs.judges import make_judges
    from shoal.runs.machine import place_rank
    from shoal.runs.swarm_status import StatusReporter
    from shoal.sandbox.verifier import Verifier

    if judges := make_judges(config.resolved(), identity):  # whose addresses may be none
        stack.enter_context(closing(judges))
    watcher.status(f"joining {config.network.name}")
    verifier = stack.enter_context(Verifier(config.tasks))
    rewards = rewards_of(config, verifier, place_rank(config, ranks))
    if rewards:
        stack.callback(rewards.close)
    model = config.resolved().policy.model[0]
    made = SwarmConnection(
        config,
        identity,
        kind="program" if is_endpoint(model) else "model",
        model=public_name(model),
        rewards=rewards,
        waits=True,
    )
    place = stack.enter_context(closing(made))
    reporter = stack.enter_context(closing(StatusReporter(watcher, place, folder.path, config.round.peers)))
    swarm = RankZeroSwarm(place, ranks) if ranks.size > 1 else place
    member = SwarmNode(identity.name, swarm, place, reporter, judges)
    nodes = stack.enter_context(closing(Nodes(config, watcher.status, checkpoint, ranks, member, rewards, verifier)))
    policy = nodes.nodes[0].policy
    place.start(nodes.tasks.identities, policy.control_strings() if isinstance(policy, LanguagePolicy) else ())
    gc.collect()  # a later full collection would walk over all that was imported, and delay what comes in
    gc.freeze()
    return nodes


def _check_names(folder: RunFolder, checkpoint: Path, names: list[str], identity: Identity | None) -> None:
    """Raises `UserError` if the checkpoint is of other nodes."""
    kept = {path.name for path in checkpoint.iterdir() if path.is_dir()}
    if kept and (missing := [name for name in names if name not in kept]):
        way = f"go on with `shoal {'run' if identity else 'join'} --resume`"
        way += ", or with the identity that began it (`shoal id`)" if identity else ""
        raise UserError(
            f"{folder.path} has no checkpoint of {missing[0]}: "
            + (way if len(missing) == len(names) else f"bring back the {CONFIG} with its {len(kept)} nodes")
        )


def new_folder() -> Path:
    """`runs/DATE-TIME`, with a number behind it if there is such a folder already."""
    name = Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    candidates = [name, *(name.with_name(f"{name.name}-{number}") for number in range(2, 100))]
    return next(path for path in candidates if not path.exists())
