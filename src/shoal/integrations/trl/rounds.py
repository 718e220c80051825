"""The rounds of a node whose learner is a GRPOTrainer: each gives the groups of one generation batch.

    rounds = Rounds(node, peers=4, why=lambda: tasks.trouble)
    batch = rounds.batch(8)         # 8 groups: at most 4 of them foreign, the others own
    rounds.metrics                  # reward/local, reward/peers, ...

`Node.act` and `Node.learn` are those of every node. The trainer wants a fixed number of groups: where others have fewer
than J to give, the node answers more questions of its own.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from shoal.errors import UserError
from shoal.learn.advantages import advantages
from shoal.node import Node
from shoal.policy.language import LanguagePolicy
from shoal.protocols import UpdateResult
from shoal.rollout import Completion, Scored
from shoal.runs.metrics import learned_rows, live_in_pool, round_metrics
from shoal.selection.pool import Pool

LOGGED = (
    *("reward/local", "reward/peers", "rollouts/live_local", "rollouts/sampled", "rollouts/live_pool"),
    *("rollouts/refused", "gradient/peers", "seconds/generate", "seconds/score"),
)
"""Figures of a round that TRL logs, with shoal's names."""
MOST_SLOTS = 64
"""Questions of a round that other nodes take."""
TRIES = 64
"""Rounds in a row without any rollout, after which it gives up."""


class WholeGroups(Pool):
    """A pool of rollouts with `num_generations` completions that fit: TRL compares whole groups of one size."""

    def __init__(self, num_generations: int, fits: Callable[[Completion], object]) -> None:
        """`fits`: gives something true for a completion with tokens to train on."""
        super().__init__()
        self._num_generations = num_generations
        self._fits = fits

    def add(self, scored: Iterable[Scored], round: int) -> None:
        cut = (replace(s, rollout=s.rollout.first(self._num_generations)) for s in scored)
        cut = (replace(s, rewards=s.rewards[: self._num_generations]) for s in cut)
        whole = (s for s in cut if len(s.rewards) == self._num_generations)
        super().add((s for s in whole if all(map(self._fits, s.rollout.completions))), round)


class TrainerLearner:
    """Stands for the trainer, which takes the step itself: it keeps the batch and tells each maker's share of the
    gradient."""

    def __init__(self, policy: LanguagePolicy, scale_rewards: str) -> None:
        self._policy = policy
        self._scale_rewards = scale_rewards

    def update(self, batch: Sequence[Scored], seed: int = 0) -> UpdateResult:
        groups = advantages([scored.rewards for scored in batch], self._scale_rewards)
        sizes: dict[str, float] = defaultdict(float)
        for scored, group in zip(batch, groups, strict=True):
            for completion, advantage in zip(scored.rollout.completions, group, strict=True):
                sizes[scored.rollout.node] += abs(advantage) * len(self._policy.completion_ids(completion))
        total = sum(sizes.values())
        return UpdateResult(gradient_shares={maker: size / total for maker, size in sizes.items()} if total else {})

    def save(self, folder: Path) -> None:
        """Nothing: the trainer saves its optimiser."""

    def load(self, folder: Path) -> None: ...


class Rounds:
    """Rounds of one node."""

    def __init__(self, node: Node, peers: int, why: Callable[[], str]) -> None:
        """`peers`: J, other nodes' groups in each batch, as far as the pool has them. `why`: says what went wrong
        where there are no rollouts."""
        self.node = node
        self.peers = peers
        self._why = why
        self.metrics: dict[str, float] = {}
        """What TRL logs of the last round."""
        self.row: dict[str, Any] = {}
        """Its row, as in `metrics.jsonl`."""
        self.learned: list[dict[str, Any]] = []
        """What it learned from, as in `learned.parquet`."""

    def batch(self, groups: int) -> list[Scored]:
        """`groups` scored rollouts to train on, own ones first. Shares all own ones."""
        node = self.node
        node.pool.add(node.scorer.score(node.swarm.receive()), node.round + 1)
        peers = min(self.peers, live_in_pool(node))
        local = self._answer(groups - peers)
        node.local, node.I, node.J = local, groups - peers, peers
        result = node.learn()
        batch = result.batch + self._answer(groups - len(result.batch))
        self.row = round_metrics(node, result)
        self.metrics = {name: self.row[name] for name in LOGGED if self.row.get(name) is not None}
        self.learned = learned_rows(node, result)
        return batch

    def _answer(self, n: int) -> list[Scored]:
        """Own rollouts of `n` questions, scored and shared."""
        local: list[Scored] = []
        failed = 0
        while n > len(local):
            self.node.I = min(n - len(local), MOST_SLOTS)
            self.node.act()
            local += self.node.local
            failed = 0 if self.node.local else failed + 1
            if failed == TRIES:
                raise UserError(f"nothing could be asked and scored in {TRIES} rounds in a row: {self._why()}")
        return local
