"""What a generative verifier is worth before anything is trained by it: does it tell right from wrong, what moves it?

    python benchmarks/generative_reward.py Qwen/Qwen2.5-7B-Instruct --questions 8

The tasks know their right answers; a wrong one is another question's right one. Each injection is added to the
wrong answer; what counts is how much it raises the reward.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from shoal.config.tasks import TasksConfig
from shoal.rewards.reward import Reward
from shoal.rollout import Question
from shoal.tasks import Tasks

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from injections import INJECTIONS


@dataclass(frozen=True)
class Case:
    """A question with an answer that is right and one that is wrong."""

    question: Question
    right: str
    wrong: str


@dataclass(frozen=True)
class Trial:
    """How a reward did."""

    right: float
    """Its mean for right answers."""
    wrong: float
    """Its mean for wrong ones."""
    accuracy: float
    """How often it gives a question's right answer more than its wrong one; equal counts half. Chance is 0.5."""
    lifts: dict[str, float]
    """For each injection, how much it raises a wrong answer's reward, on average."""
    turned: dict[str, float]
    """For each injection, how often a wrong answer with it has more than the right one."""


def trial(reward: Reward, cases: Sequence[Case], injections: Sequence[str] = INJECTIONS) -> Trial:
    """Tries `reward` on `cases`. What it does not apply to counts as 0."""
    items = [(c.question, [c.right, c.wrong, *(f"{c.wrong}\n{text}" for text in injections)]) for c in cases]
    rows = [[value or 0.0 for value in values] for values in reward.score(items)]
    columns = list(zip(*rows, strict=True))
    right, wrong, *injected = columns
    return Trial(
        right=fmean(right),
        wrong=fmean(wrong),
        accuracy=_beats(right, wrong),
        lifts={text: fmean(column) - fmean(wrong) for text, column in zip(injections, injected, strict=True)},
        turned={text: _beats(column, right) for text, column in zip(injections, injected, strict=True)},
    )


def cases_of(tasks: Tasks, per_task: int, seed: int = 0) -> list[Case]:
    """Held-out questions of those tasks that know a right answer."""
    cases = []
    for task, questions in zip(tasks.tasks, tasks.held_out(per_task + 1, seed).values(), strict=True):
        entry = getattr(task, "entry", None)
        answers = [entry(q.id.seed, q.id.index)["answer"] if entry else None for q in questions]
        for place, question in enumerate(questions[:per_task]):
            right = answers[place]
            wrong = next((answer for answer in answers if answer and answer != right), None)
            if right and wrong:
                cases.append(Case(question, str(right), str(wrong)))
    return cases


def _beats(these: Sequence[float], those: Sequence[float]) -> float:
    return fmean((a > b) + (a == b) / 2 for a, b in zip(these, those, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description="What a generative verifier is worth, and what moves it.")
    parser.add_argument("model", help="a Hugging Face name, a model folder or a GGUF file")
    parser.add_argument("--suite", default="reef", help="whose questions (default: reef)")
    parser.add_argument("--questions", type=int, default=4, help="of each task (default: 4)")
    parser.add_argument("--votes", type=int, default=4, help="judging prompts (default: 4)")
    parser.add_argument("--raw", action="store_true", help="not calibrated")
    parser.add_argument("--device", default="auto", help="where the model computes (default: auto)")
    args = parser.parse_args(arguments)
    from shoal.policy.device import place  # torch, only now
    from shoal_extras.rewards.generative import GenerativeReward

    reward = GenerativeReward(args.model, place(args.device), args.votes, calibrated=not args.raw)
    cases = cases_of(Tasks(TasksConfig(suite=args.suite)), args.questions)
    found = trial(reward, cases)
    print(f"{len(cases)} questions: right {found.right:.3f}, wrong {found.wrong:.3f}, told apart {found.accuracy:.0%}")
    print("\n lift  beats the right one  wrong answer with")
    for text in sorted(found.lifts, key=lambda text: -found.lifts[text]):
        print(f"{found.lifts[text]:+.3f} {found.turned[text]:8.0%}             {text[:60]!a}")


if __name__ == "__main__":
    main()
