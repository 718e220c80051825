"""Collective reinforcement learning of language models: nodes that share what they tried, not their weights.

    import shoal

    result = shoal.run(model="guppy", nodes=2, rounds=20)       # what `shoal run` does
    print(result.metrics.groupby("round")["eval/pass@1"].mean())
    print(shoal.evaluate("guppy", suite="pond").pass_at(1))

`run`, `join` and `evaluate` do what the commands do. The parts below them let you write the loop yourself:
`examples/swarm_loop.py` is the whole algorithm.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.api import RunResult, evaluate, join, make_node, run
    from shoal.config.load import load_config
    from shoal.config.settings import Config
    from shoal.config.tasks import TasksConfig, TaskSpec
    from shoal.errors import UserError
    from shoal.evaluation.pass_at_k import Evaluation
    from shoal.learn.learner import GRPOLearner
    from shoal.node import Node, RoundResult
    from shoal.policy.language import LanguagePolicy
    from shoal.protocols import UpdateResult
    from shoal.rewards.scorer import Scorer
    from shoal.rollout import Completion, Message, Question, QuestionId, Rollout, Scored
    from shoal.sandbox.verifier import Verifier
    from shoal.selection.pool import Pool
    from shoal.selection.selection import FairSelection
    from shoal.tasks.draw import Tasks
    from shoal.transports.memory import MemorySwarm

__version__ = "0.2.0"

_MODULES = {
    "shoal.api": ("RunResult", "evaluate", "join", "make_node", "run"),
    "shoal.config.load": ("load_config",),
    "shoal.config.settings": ("Config",),
    "shoal.config.tasks": ("TaskSpec", "TasksConfig"),
    "shoal.errors": ("UserError",),
    "shoal.evaluation.pass_at_k": ("Evaluation",),
    "shoal.learn.learner": ("GRPOLearner",),
    "shoal.node": ("Node", "RoundResult"),
    "shoal.policy.language": ("LanguagePolicy",),
    "shoal.protocols": ("UpdateResult",),
    "shoal.rewards.scorer": ("Scorer",),
    "shoal.rollout": ("Completion", "Message", "Question", "QuestionId", "Rollout", "Scored"),
    "shoal.sandbox.verifier": ("Verifier",),
    "shoal.selection.pool": ("Pool",),
    "shoal.selection.selection": ("FairSelection",),
    "shoal.transports.memory": ("MemorySwarm",),
    "shoal.tasks.draw": ("Tasks",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Completion",
    "Config",
    "Evaluation",
    "FairSelection",
    "GRPOLearner",
    "LanguagePolicy",
    "MemorySwarm",
    "Message",
    "Node",
    "Pool",
    "Question",
    "QuestionId",
    "Rollout",
    "RoundResult",
    "RunResult",
    "Scored",
    "Scorer",
    "TaskSpec",
    "Tasks",
    "TasksConfig",
    "UpdateResult",
    "UserError",
    "Verifier",
    "evaluate",
    "join",
    "load_config",
    "make_node",
    "run",
]


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used, so that `import shoal` is quick and does not import torch."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
