"""Why a run learns nothing, in plain words.

    diagnosis = Diagnosis(config, tasks)
    diagnosis.look(results)          # after each round; one result for each node that learns
    diagnosis.warning                # "nothing to learn from in 3 rounds: all 192 answers are wrong. ..."; or ""

`FailedScoring` finds rounds in which nothing can be scored: a scorer that raises for every answer teaches nothing.

A model learns only where some answers to a question are better than others. After three rounds without such a rollout
the answers themselves show why. Their texts are a model's: what is quoted of them is short and printable.
"""

from collections import deque
from collections.abc import Sequence
from math import sqrt
from statistics import fmean, variance

from shoal.config.answer_form import extract
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.node import RoundResult
from shoal.parallel.ranks import Ranks
from shoal.rewards.combined import Combined
from shoal.rewards.function import FunctionReward
from shoal.rewards.reward import Verified
from shoal.rollout import FinishReason, Scored
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.untrusted import printable

ROUNDS = 3
"""Rounds without anything to learn from, after which a run says so."""
FLAT = 300
"""Rounds in which the mean reward does not rise, after which it says so."""
SHOWN, QUOTED = 3, 100
"""Answers that are shown, and characters of each."""


class Diagnosis:
    """Looks at the rounds of a run."""

    def __init__(self, config: Config, tasks: Tasks, rewards: Combined | None = None) -> None:
        self.config, self.rewards = config, rewards
        self.tasks = tasks
        self.cause = ""
        """Why nothing is learned, in a word; empty as long as something is, or nobody knows yet."""
        self.warning = ""
        """The same for people: a line, and three lines of answers."""
        self._dead: list[list[Scored]] = []
        self.flat = ""
        """That rewards have not risen for long; or ""."""
        self._means: deque[float] = deque(maxlen=FLAT)

    def look(self, results: Sequence[RoundResult]) -> None:
        """Takes the results of a round, of the nodes that learn."""
        groups = [scored for result in results for scored in result.local]
        batch = [scored for result in results for scored in result.batch]
        if rewards := [reward for scored in groups for reward in scored.rewards]:
            self._means.append(fmean(rewards))
            self.flat = self._flat()
        if not groups or any(scored.live or scored.has_signal for scored in (*groups, *batch)):
            self._dead.clear()
            self.cause = self.warning = ""
            return
        self._dead = [*self._dead[1 - ROUNDS :], groups]
        if len(self._dead) == ROUNDS:
            self.cause, why = self._why([scored for groups in self._dead for scored in groups])
            self.warning = "\n".join([f"nothing to learn from in {ROUNDS} rounds: {why}", *map(_shown, groups[:SHOWN])])

    def _flat(self) -> str:
        """Compares the two halves of the last `FLAT` rounds."""
        half = FLAT // 2
        before, now = list(self._means)[:half], list(self._means)[half:]
        if len(self._means) < FLAT or fmean(now) >= 0.9:
            return ""
        error = sqrt((variance(before) + variance(now)) / half)
        if fmean(now) - fmean(before) > max(0.005, 2 * error):
            return ""
        return (
            f"the reward of own answers does not rise: {fmean(now):.2f} in the last {half} rounds, {fmean(before):.2f} "
            "before. Take easier tasks (--suite) or a larger model (--model), or stop: what is learned is kept"
        )

    def _why(self, groups: Sequence[Scored]) -> tuple[str, str]:
        """The cause in a word; why, and what to do, in a line."""
        answers = [completion for scored in groups for completion in scored.rollout.completions]
        rewards = [reward for scored in groups for reward in scored.rewards]
        policy, every = self.config.policy, f"all {len(answers)} answers"
        if policy.num_generations == 1:
            return "alone", "an answer has no others to be compared with. Use --num-generations 8"
        own = any(spec.kind != "verifier" for spec in self.config.rewards)  # whose rewards have no range
        own = own or not 0 <= min(rewards) <= max(rewards) <= 1
        asked = [(scored.question, [one.answer for one in scored.rollout.completions]) for scored in groups]
        means = self.rewards.means(asked).values() if self.rewards else ()
        if means and all(mean is None for mean in means):
            return "none", "all rewards are None. Return a number for the answers to which the reward applies"
        same = f"are {rewards[0]:g}" if min(rewards) == max(rewards) else "of a question are the same"
        if min(rewards) >= 1 and not own:
            return "solved", f"{every} are right. Take harder questions"
        if all(answer.finish_reason == FinishReason.length for answer in answers):
            at = f"all rewards {same}, and " if own else ""
            at += f"{every} were cut at {policy.max_completion_length} tokens"
            return "cut", f"{at}. Raise --max-completion-length, or ask for a short answer"
        if not own and not any(self._in_form(scored) for scored in groups):
            return "form", f"none of {len(answers)} answers has the form that the tasks ask for. Show it in the prompt"
        if all(len({answer.text for answer in scored.rollout.completions}) == 1 for scored in groups):
            right = sum(reward >= 1 for reward in rewards) / len(rewards)
            at = "all answers to a question have the same text"
            if own:
                return "alike", f"{at}. Raise --temperature"
            at += f", and {right:.0%} are right"
            return "alike", f"{at}. {'Take harder questions, or raise' if right > 0.5 else 'Raise'} --temperature"
        if max(rewards) <= 0 and not own:
            steps = "" if self.config.tasks.partial_credit else ", credit in steps (--partial-credit true)"
            return "wrong", f"{every} are wrong. Take easier questions{steps}, or a larger model"
        return "equal", f"all rewards {same}. Let the reward tell better answers from worse"

    def _in_form(self, scored: Scored) -> bool:
        """Whether any answer is in the form that its task asks for."""
        form = self.tasks.lookup(scored.question.id)[1].answer
        return any(extract(completion.text, form) is not None for completion in scored.rollout.completions)


def _shown(scored: Scored) -> str:
    question, answer = (printable(text, QUOTED) for text in (scored.question.shown, scored.rollout.completions[0].text))
    return f'  "{question}" -> "{answer}" (reward {scored.rewards[0]:.2f})'


class FailedScoring:
    """Counts the failures of a verifier and of reward functions."""

    def __init__(self, verifier: Verifier, rewards: Combined | None) -> None:
        others = [entry.reward for entry in rewards.entries] if rewards else []
        self._functions = [reward for reward in others if isinstance(reward, FunctionReward)]
        self._verifier = verifier
        self._known = all(isinstance(reward, FunctionReward | Verified) for reward in others)
        self._before = 0, 0
        self.all_failed()  # the verifier may have been used before

    def check(self, ranks: Ranks, trouble: str) -> None:
        """Raises `UserError`, on all ranks, if every answer since the last call failed to be scored. `trouble`: why."""
        if ranks.any(self.all_failed()):
            raise UserError(
                f"no answer could be scored: {trouble}; correct the scorer, and let it return 0 for an answer that it "
                "cannot read"
            )

    def all_failed(self) -> bool:
        """Whether there were answers since the last call, and each failed. False where a model or a person rewards."""
        counts = [self._verifier.counts, *(function.counts for function in self._functions)]
        failed, scored = map(sum, zip(*counts, strict=True))
        before, self._before = self._before, (failed, scored)
        return self._known and 0 < scored - before[1] == failed - before[0]
