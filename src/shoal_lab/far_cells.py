"""The cells of a study on Ray: as tasks, or, where a cell is larger than a machine, its nodes as actors.

    for event in run_on_ray("ray://head:10001", study, folder, cells): ...

A machine of the cluster needs shoal, and no disk of the study's: a task gets the study's own models and what its run
has so far, and sends the folder of its run back with each new checkpoint and at its end. A worker or machine that is
lost costs what its cells did since.
"""

import shutil
from collections import Counter, deque
from collections.abc import Generator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from shoal.errors import UserError
from shoal.parallel.cluster import connect, fitting, needs_of, pack, unpack
from shoal.runs.folder import CHECKPOINTS
from shoal_lab.cells import run_cell
from shoal_lab.config import LabConfig
from shoal_lab.processes import PAUSE, Event
from shoal_lab.provenance import BASES, SOURCES
from shoal_lab.study import Cell, Study

TRIES: Final = 3
"""How often a cell is tried that is lost again and again before it has a new checkpoint."""


def run_on_ray(on: str, study: Study, folder: Path, cells: Sequence[Cell]) -> Generator[Event, None, None]:
    """Runs `cells` in the Ray cluster `on`, and yields what happens. Closing the iterator ends them at once. Raises
    `UserError`."""
    ray = connect(on)
    from ray.util.queue import Queue
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    news = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
    bases, task = ray.put(pack(folder / BASES)), ray.remote(far_cell)
    waiting, running, tries = deque(range(len(cells))), dict[Any, int](), Counter[int]()

    try:
        while waiting or running:
            while waiting:
                number, cell = waiting[0], cells[waiting[0]]
                needs, most, apart = _plan(ray, study.config(cell))
                if len(running) >= most:
                    break
                begun = pack(folder / cell.path)
                cell_task = task.options(max_retries=0, **needs)
                running[cell_task.remote(SOURCES, study, cell, bases, begun, news, number, apart)] = number
                waiting.popleft()
            ended, _ = ray.wait(list(running), timeout=PAUSE)
            for number, rounds, files in news.get_nowait_batch(news.qsize()):
                if files:
                    _keep(files, folder / cells[number].path)
                    tries[number] = 0
                yield Event(number, "progress", rounds)
            for ref in ended:
                number = running.pop(ref)
                try:
                    files = ray.get(ref)
                except ray.exceptions.RayTaskError as error:
                    known = isinstance(error.cause, UserError | OSError)
                    yield Event(number, "failed", str(error.cause if known else error))
                except ray.exceptions.RayError as error:
                    tries[number] += 1
                    why = str(error).splitlines()[0]
                    if tries[number] < TRIES:
                        waiting.append(number)
                        yield Event(number, "lost", f"lost, and goes on from its last checkpoint ({why})")
                    else:
                        yield Event(number, "failed", f"lost {TRIES} times ({why})")
                else:
                    _keep(files, folder / cells[number].path)
                    yield Event(number, "done")
    finally:
        for ref in running:
            ray.cancel(ref, force=True)
        news.shutdown(force=True)


def _plan(ray: Any, config: LabConfig) -> tuple[dict[str, float], int, bool]:
    """What the task of a cell needs, how many such cells are handed to Ray at once, and whether its nodes are actors:
    if no machine has room for the cell, or it needs more than the one GPU that a process can use."""
    count = len(config.node_models)
    needs = needs_of(config, count)
    if needs["num_gpus"] <= 1 and (rooms := fitting(ray, needs)):
        return needs, 2 * rooms, False
    return {"num_cpus": 0}, max(1, fitting(ray, needs_of(config)) // count), True


def _keep(files: bytes, path: Path) -> None:
    """Puts a run that came back in the place of what was known of it."""
    new = path.with_name(f".{path.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    unpack(files, new)
    shutil.rmtree(path, ignore_errors=True)
    new.rename(path)


def far_cell(
    sources: str, study: Study, cell: Cell, bases: bytes, begun: bytes, news: Any, number: int, apart: bool
) -> bytes:
    """In Ray: runs a cell, and returns the folder of its run. `apart`: its nodes are actors. Raises `UserError`."""
    if sources != SOURCES:
        raise UserError("a machine of the Ray cluster has another version of shoal than this one: install the same")
    with TemporaryDirectory(prefix="shoal-") as room:
        folder = Path(room)
        path = folder / cell.path
        unpack(bases, folder / BASES)
        unpack(begun, path)
        config = study.config(cell, folder)
        config.round.on = "ray" if apart else ""
        sent = ""

        def on_round(round: int) -> None:
            nonlocal sent
            newest = max((each.name for each in (path / CHECKPOINTS).glob("round-*")), default="")
            files = pack(path) if newest > sent else b""
            sent = max(sent, newest)
            news.put((number, round, files))

        run_cell(config, path, on_round)
        return pack(path)
