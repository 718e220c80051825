"""Nodes on Ray: the model of each in an actor, on this machine or on others.

    workers = RayWorkers(config, checkpoint, make_nodes, {"node-1": "guppy", "node-2": "guppy"})

The rest of a node stays in this process, the driver, as with worker processes (`workers`): a run is the same wherever
its models are. Machines share no disk: model folders and checkpoints travel as archives. Ray is imported here alone.
"""

from __future__ import annotations

import io
import logging
import math
import tarfile
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from shoal.config.caches import cache_folder
from shoal.config.settings import Config
from shoal.errors import Stopped, UserError
from shoal.parallel.lockstep import Lockstep
from shoal.parallel.worker_process import PAUSE, Status
from shoal.parallel.workers import Workers
from shoal.protocols import OnProgress, progress_to

NAMES: Final = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
"""Of what a task or an actor needs, in Ray's lists of resources."""


def connect(where: str) -> Any:
    """The module `ray`, connected. `where`: "ray" is the cluster of this machine, or a new one of this machine alone;
    ray://HOST:PORT is elsewhere. Raises `UserError`."""
    try:
        import ray
    except ImportError as error:
        raise UserError("--on ray needs Ray: pip install 'shoal[ray]'") from error
    if not ray.is_initialized():
        try:
            with warnings.catch_warnings(action="ignore"):
                address = None if where == "ray" else where
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ImportError, RuntimeError, ValueError) as error:
            raise UserError(f"cannot reach Ray at {where}: {(str(error) or repr(error)).splitlines()[0]}") from error
    return ray


def fitting(ray: Any, needs: Mapping[str, float]) -> int:
    """How many tasks or actors that need so much (`needs_of`) the machines of the cluster have room for."""
    wanted = {NAMES[key]: amount for key, amount in needs.items() if amount}
    machines = [machine["Resources"] for machine in ray.nodes() if machine["Alive"]]
    rooms = (min(machine.get(name, 0) / amount for name, amount in wanted.items()) for machine in machines)
    return sum(math.floor(room + 1e-9) for room in rooms)


def needs_of(config: Config, nodes: int = 1) -> dict[str, float]:
    """What Ray sets aside for so many nodes of a run in one process."""
    gpus, memory = config.round.gpus * nodes, config.round.memory * nodes
    return {"num_cpus": max(1, config.threads), "num_gpus": gpus, "memory": memory * 1e9}


def pack(folder: Path) -> bytes:
    """The files of a folder as an archive; nothing for a folder that is not there."""
    if not folder.is_dir():
        return b""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(folder, ".")
    return data.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Puts the files of an archive into a folder."""
    if data:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(folder, filter="data")


class NodeActor:
    """In Ray: a node's policy and learner."""

    def __init__(self) -> None:
        self.room = TemporaryDirectory(prefix="shoal-")
        self.parts: dict[str, Any] = {}
        self.done = 0
        self.halted = False

    def start(
        self, make: Callable[..., Any], config: Config, name: str, source: str, model: bytes, checkpoint: bytes
    ) -> int:
        """Loads the model. Returns the number of trained parameters."""
        if model:  # where adapters that were saved here find it again
            source = str(cache_folder("models") / f"from-ray-{blake2b(model, digest_size=8).hexdigest()}")
            unpack(model, Path(source))
        room = Path(self.room.name)
        unpack(checkpoint, room / name)
        threads = max(1, config.threads)
        made = make(config, room if checkpoint else None, threads, {name: source}, lambda text: None)
        self.parts = dict(zip(("policy", "learner"), made[name], strict=True))
        return sum(weight.numel() for weight in self.parts["policy"].lm.model.parameters() if weight.requires_grad)

    def call(self, part: str, method: str, arguments: tuple[Any, ...], reports: bool) -> Any:
        """A method of the policy or the learner. What it saves in a folder comes back as an archive."""
        self.done, self.halted = 0, False
        with progress_to(self.parts[part], self._report if reports else None):
            if method not in ("save", "load"):
                return methodcaller(method, *arguments)(self.parts[part])
            with TemporaryDirectory(dir=self.room.name) as room:
                unpack(arguments[0], Path(room))
                methodcaller(method, Path(room))(self.parts[part])
                return pack(Path(room)) if method == "save" else None

    def _report(self, answered: int) -> None:
        self.done = answered
        if self.halted:
            raise Stopped

    def progress(self, halt: bool) -> int:
        """How far the call has come. `halt`: it is to end."""
        self.halted |= halt
        return self.done


class RayWorkers(Workers):
    """The actors of a run, one for each node. Close them."""

    def __init__(
        self, config: Config, checkpoint: Path | None, make: Callable[..., Any], sources: Mapping[str, str]
    ) -> None:
        """Asks Ray for all of them at once, and waits for nothing. `make`: as `make_nodes`. Raises `UserError`."""
        self.lockstep = Lockstep()
        self.sources = dict(sources)
        self.nodes = {name: number for number, name in enumerate(sources)}
        self.trained = {}
        self.ray = ray = connect(config.round.on)
        from ray.util import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        needs = needs_of(config)
        if fitting(ray, needs) < len(sources):
            each = f"{needs['num_cpus']} processors, {needs['num_gpus']:g} GPUs and {config.round.memory:g} GB"
            raise UserError(f"the Ray cluster has no room for {len(sources)} nodes with {each} each: see `ray status`")
        group = placement_group([{NAMES[key]: amount for key, amount in needs.items() if amount}] * len(sources))
        self.close = partial(remove_placement_group, group)  # type: ignore[method-assign]
        self._actors: dict[str, Any] = {}
        self._started: dict[str, Any] = {}
        for number, (name, source) in enumerate(sources.items()):
            place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
            actor = ray.remote(NodeActor).options(**needs, max_concurrency=2, scheduling_strategy=place).remote()
            archives = pack(Path(source)), pack(checkpoint / name) if checkpoint else b""
            self._actors[name], self._started[name] = actor, actor.start.remote(make, config, name, source, *archives)

    def wait_ready(self, status: Status) -> None:
        status(f"starting {len(self._actors)} nodes on Ray")
        self.trained = {name: self._answer(name, started) for name, started in self._started.items()}

    def call(self, node: str, part: str, method: str, *arguments: Any, on_progress: OnProgress | None = None) -> Any:
        sent = arguments if method not in ("save", "load") else (pack(arguments[0]) if method == "load" else b"",)
        asked = self._actors[node].call.remote(part, method, sent, on_progress is not None)
        self.lockstep.pause()
        while on_progress and not self.ray.wait([asked], timeout=PAUSE)[0]:
            try:
                on_progress(self._answer(node, self._actors[node].progress.remote(False)))
            except Stopped:
                for actor in self._actors.values():
                    actor.progress.remote(True)
                raise
        result = self._answer(node, asked)
        if method == "save":
            unpack(result, arguments[0])
        return result

    def _answer(self, node: str, asked: Any) -> Any:
        try:
            return self.ray.get(asked)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, UserError | OSError | Stopped) else error from None
        except self.ray.exceptions.RayActorError as error:
            lost = f"the worker of {node} was lost on Ray; --resume continues from the last checkpoint"
            raise UserError(lost) from error
