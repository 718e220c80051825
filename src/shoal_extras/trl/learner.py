"""The pool and the learner of a node whose learner is a GRPOTrainer: it takes the step itself."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from shoal.learn.advantages import advantages
from shoal.policy.language import LanguagePolicy
from shoal.protocols import UpdateResult
from shoal.rollout import Completion, Scored
from shoal.selection.pool import Pool


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
