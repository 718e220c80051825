"""How often this node solves each task: what a peer's single completion is compared with.

A rollout of one completion, as a person or a program gives it, has no group mean to be compared with. Its baseline is
this node's own success rate for the task.
"""

from collections.abc import Sequence

import msgspec

from shoal.rollout import Scored

MEMORY = 10  # A success rate is the plain mean of this many own rollouts, and then a moving mean that forgets as fast
LEAST = 0.05  # A single completion whose reward is within this of the baseline teaches nothing


class OwnSuccess(msgspec.Struct):
    """Success rates by task, from this node's own rollouts alone."""

    rates: dict[tuple[str, str], tuple[float, int]] = {}
    """For each task and its parameters: the mean reward, and the number of rollouts behind it, up to `MEMORY`."""

    def observe(self, local: Sequence[Scored]) -> None:
        """Counts all own rollouts of a round."""
        for scored in local:
            task = _task(scored)
            rate, count = self.rates.get(task, (0.0, 0))
            count = min(count + 1, MEMORY)
            self.rates[task] = rate + (min(max(scored.mean_reward, 0.0), 1.0) - rate) / count, count

    def with_baseline(self, scored: Scored) -> Scored | None:
        """The rollout ready to be learned from, or None if it carries no gradient.

        A group is compared with its own mean. A single completion gets the success rate as its `baseline`, once there
        is one.
        """
        if len(scored.rewards) > 1:
            return scored if scored.live else None
        rate, count = self.rates.get(_task(scored), (0.0, 0))
        if not count or abs(scored.rewards[0] - rate) < LEAST:
            return None
        return msgspec.structs.replace(scored, baseline=rate)


def _task(scored: Scored) -> tuple[str, str]:
    return scored.question.id.task, scored.question.id.config
