"""The model that a user names: a run, a node of it, or any other.

source_of("runs/one").model          # the best node of the run's last checkpoint
source_of("runs/one/node-2").node    # node-2
"""

from dataclasses import dataclass
from pathlib import Path

from shoal.errors import UserError, nearest
from shoal.policy.named import check_exists
from shoal.runs.folder import CHECKPOINTS, CONFIG, best_model, models, models_in, read_metrics


@dataclass(frozen=True)
class Source:
    """A model, and the run that it is from."""

    model: str
    """What `load` takes."""
    run: Path | None = None
    """The folder of the run that made it."""
    node: str = ""
    round: int = 0


def source_of(text: str) -> Source:
    """The model that `text` names. Raises `UserError` if a run has no such model, or nothing has this name."""
    path = Path(text)
    whole = (path / CONFIG).is_file()
    if whole or ((path.parent / CONFIG).is_file() and not path.exists()):
        run = path if whole else path.parent
        nodes = models(run)
        if not nodes:
            raise UserError(f"{run} has no model yet: there is none in {run / CHECKPOINTS}")
        if not whole and path.name not in nodes:
            raise UserError(f"{run} has no model of '{path.name}'; {nearest(path.name, nodes)}")
        best = best_model(run, read_metrics(run)) if whole else None
        return _of_checkpoint(best or nodes[path.name], run)
    if len(path.parents) > 2 and path.parents[1].name == CHECKPOINTS and (path.parents[2] / CONFIG).is_file():
        if path.parent.is_dir() and path in models_in(path.parent).values():
            return _of_checkpoint(path, path.parents[2])
        raise UserError(f"'{path}' holds no model of the run: {path.parents[1]} has its last two checkpoints")
    check_exists(text)
    return Source(text)


def _of_checkpoint(model: Path, run: Path) -> Source:
    return Source(str(model), run, model.name, int(model.parent.name.removeprefix("round-")))
