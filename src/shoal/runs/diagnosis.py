"""Why a run learns nothing, in plain words.

    diagnosis = Diagnosis(config, tasks)
    diagnosis.look(results)          # after each round; one result for each node that learns
    diagnosis.warning                # "nothing to learn: all 192 answers are wrong\n  do: ..."; or ""

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
from shoal.runs.data import has_data
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.untrusted import printable

ROUNDS, ENOUGH = 3, 10
"""Rounds without anything to learn from, after which a run says so; and, from its beginning, after which it may end."""
FLAT = 300
"""Rounds in which the mean reward does not rise, after which it says so."""
QUOTED = 28, 22, 10
"""Characters of a question, an answer and a right one that are shown: a line of a terminal."""


class Diagnosis:
    """Looks at the rounds of a run."""

    def __init__(self, config: Config, tasks: Tasks, rewards: Combined | None = None) -> None:
        self.config, self.rewards = config, rewards
        self.tasks = tasks
        self.cause = ""
        """Why nothing is learned, in a word; empty as long as something is, or nobody knows yet."""
        self.warning = ""
        """The same for people, in three lines: what is so, what to do, and an answer."""
        self.hopeless = False
        """Whether nothing was there to learn from in `ENOUGH` rounds, and nothing before them."""
        self._dead: list[list[Scored]] = []
        self._learned = False
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
            self._learned = True
            self.cause = self.warning = ""
            return
        self._dead = [*self._dead[1 - ENOUGH :], groups]
        self.hopeless = len(self._dead) == ENOUGH and not self._learned
        if len(self._dead) >= ROUNDS:
            self.cause, what, do = self._why([scored for groups in self._dead for scored in groups])
            self.warning = f"nothing to learn: {what}\n  do: {do}\n{self._shown(groups[0])}"

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
            "before\n  do: stop if that is enough, or take easier tasks (--suite, --only), another way of asking "
            "(`shoal probe`) or another model (--model); what is learned is kept"
        )

    def _why(self, groups: Sequence[Scored]) -> tuple[str, str, str]:
        """The cause in a word, the cause, and what to do."""
        answers = [completion for scored in groups for completion in scored.rollout.completions]
        rewards = [reward for scored in groups for reward in scored.rewards]
        policy, every = self.config.policy, f"all {len(answers)} answers"
        if policy.num_generations == 1:
            return "alone", "an answer has no others to be compared with", "use --num-generations 8"
        own = any(spec.kind != "verifier" for spec in self.config.rewards)  # whose rewards have no range
        own = own or not 0 <= min(rewards) <= max(rewards) <= 1
        asked = [(scored.question, [one.answer for one in scored.rollout.completions]) for scored in self._dead[-1]]
        means = self.rewards.means(asked).values() if self.rewards else ()
        if means and all(mean is None for mean in means):
            return "none", "all rewards are None", "return a number for the answers to which the reward applies"
        same = f"are {rewards[0]:g}" if min(rewards) == max(rewards) else "of a question are the same"
        if min(rewards) >= 1 and not own:
            return "solved", f"{every} are right", "take harder questions: the model knows these"
        if all(answer.finish_reason == FinishReason.length for answer in answers):
            at = f"all rewards {same}, and " if own else ""
            at += f"{every} were cut at {policy.max_completion_length} tokens"
            return "cut", at, "raise --max-completion-length, or ask for a short answer"
        forms = [
            self.tasks.lookup(scored.question.id)[1].answer for scored in groups for _ in scored.rollout.completions
        ]
        if not own and all(extract(one.text, form) is None for one, form in zip(answers, forms, strict=True)):
            what = f"none of {len(answers)} answers has the form asked for"
            return "form", what, "show it in the prompt, or by worked examples (--examples 3)"
        if all(len({answer.text for answer in scored.rollout.completions}) == 1 for scored in groups):
            right = sum(reward >= 1 for reward in rewards) / len(rewards)
            at = "answers to a question are the same" + ("" if own else f", {right:.0%} are right")
            return "alike", at, f"{'' if own or right <= 0.5 else 'take harder questions, or '}raise --temperature"
        if max(rewards) <= 0 and not own:
            more = "" if self.config.tasks.partial_credit else ", --partial-credit true"
            if has_data(self.config):
                more = "" if any(spec.examples for spec in self.tasks.specs) else ", --examples 3"
            return "wrong", f"{every} are wrong", f"take easier questions{more}, or a larger model (--model)"
        return "equal", f"all rewards {same}", "let the reward tell better answers from worse"

    def _shown(self, scored: Scored) -> str:
        """A question, the first answer to it, and what would be right or what it got."""
        right = self.tasks.answer(scored.question.id) if scored.rewards[0] < 1 else None
        texts = (scored.question.shown, scored.rollout.completions[0].text, right or "")
        question, answer, right = (" ".join(printable(text, n).split()) for text, n in zip(texts, QUOTED, strict=True))
        return f'  "{question}" -> "{answer}" ({f"right: {right}" if right else f"reward {scored.rewards[0]:.2f}"})'


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
