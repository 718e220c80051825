"""A node's policy and learner where a worker process has them: the driver's stand-ins for both."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.parallel.workers import Workers
from shoal.protocols import OnProgress, UpdateResult
from shoal.rollout import Completion, Question, Scored
from shoal.tasks.task import too_long


class _Remote:
    """One part of a node, in a worker."""

    part: str

    def __init__(self, workers: Workers, node: str) -> None:
        self.workers = workers
        self.node = node

    def save(self, folder: Path) -> None:
        self._call("save", folder.absolute())

    def _call(self, method: str, *arguments: Any, on_progress: OnProgress | None = None) -> Any:
        return self.workers.call(self.node, self.part, method, *arguments, on_progress=on_progress)


class RemotePolicy(_Remote):
    """A node's language model in a worker."""

    part = "policy"

    def __init__(self, workers: Workers, node: str) -> None:
        super().__init__(workers, node)
        self.name = workers.sources[node]
        self.on_progress: OnProgress | None = None
        self.trouble = ""
        """As in `LanguagePolicy`."""

    @property
    def trained(self) -> int:
        """Trained parameters."""
        return self.workers.trained[self.node]

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        arguments = list(questions), num_generations, seed
        groups: list[tuple[Completion, ...]] = self._call("generate", *arguments, on_progress=self.on_progress)
        self.trouble = too_long(groups)
        return groups

    def cost(self, questions: Sequence[Question], answers: Sequence[Sequence[Completion]]) -> tuple[int, float]:
        cost: tuple[int, float] = self._call("cost", list(questions), list(answers))
        return cost


class RemoteLearner(_Remote):
    """A node's learner in a worker."""

    part = "learner"

    def update(self, batch: Sequence[Scored], seed: int = 0) -> UpdateResult:
        result: UpdateResult = self._call("update", list(batch), seed)
        return result

    def load(self, folder: Path) -> None:
        self._call("load", folder.absolute())
