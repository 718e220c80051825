"""Does one more stage help more than one more sample? A model answers held-out questions in several ways:

    one answer                  the first of its answers
    majority of three, four     the answer that most of them give; of as many, the first
    critique of three           it reads three of its answers and picks one
    decide from three           it reads three of its answers and gives another
    critique, then decide       it reads three answers and a critique of them, and gives another

    python examples/stages.py --model smollm2 --suite reef --per-task 16

The first three take as many samples as their names say. The others take three answers, and one more sample for each
critique or decision. So compare `critique of three` and `decide from three` with `majority of four`. Intervals are over
questions (bootstrap, paired).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import fmean

from shoal.config.settings import Config
from shoal.policy.decoders.base import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.rollout import Completion, Question, QuestionId, Rollout, Scored, canonical, seed_of
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal_extras.stages.stages import Stages

SAMPLES, RESAMPLES = 4, 2000
AGAINST = "majority of four"


def majority(texts: Sequence[str]) -> str:
    """The text that most of `texts` have; of as many, the first."""
    counts = Counter(map(canonical, texts))
    return max(texts, key=lambda text: counts[canonical(text)])


def staged(stages: Stages, name: str, quoted: Sequence[Rollout], question: Question) -> Question:
    """The question of stage `name` about rollouts; the last question again if there is nothing to ask."""
    quotes = tuple(rollout.hash for rollout in quoted)
    try:
        return stages.question(QuestionId(name, "1", stages.config, 0, 0, quotes))
    except ValueError:  # the answers do not differ
        return question


def answer_in_all_ways(
    policy: LanguagePolicy, asked: Sequence[Question], seed: int, status: Callable[[str], None]
) -> dict[str, list[str]]:
    """For each way the text that counts as the answer to each question."""

    def said(questions: Sequence[Question], count: int, what: str) -> list[list[str]]:
        status(what)
        groups = policy.generate(questions, count, seed_of(seed, what))
        return [[completion.text for completion in group] for group in groups]

    first = said(asked, SAMPLES, "answers")
    ways = {
        "one answer": [texts[0] for texts in first],
        "majority of three": [majority(texts[:3]) for texts in first],
        AGAINST: [majority(texts) for texts in first],
    }
    decider, both = Stages(["decide"], "me"), Stages(["critique", "decide"], "me")
    answers = [rollout(question, texts[:3]) for question, texts in zip(asked, first, strict=True)]
    for stages in (decider, both):
        for one, question in zip(answers, asked, strict=True):
            stages.remember(one, Scored(one, question, (0.0,) * 3))
    pairs = list(zip(answers, asked, strict=True))

    remarks = said([staged(both, "critique", [a], q) for a, q in pairs], 1, "critiques")
    questions = [staged(both, "critique", [a], q) for a, q in pairs]
    ways["critique of three"] = [
        both.settle(question.id, [text])[1][0] if question.id.quotes else way  # type: ignore[misc]
        for question, [text], way in zip(questions, remarks, ways["majority of three"], strict=True)
    ]
    told = [rollout(question, texts) for question, texts in zip(questions, remarks, strict=True)]
    for one, question in zip(told, questions, strict=True):
        both.remember(one, Scored(one, question, (0.0,)))
    for way, stages, quoted in (("decide from three", decider, answers), ("critique, then decide", both, told)):
        again = [staged(stages, "decide", [one], q) for one, q in zip(quoted, asked, strict=True)]
        new = said(again, 1, way)
        ways[way] = [
            text if question.id.quotes else before
            for question, [text], before in zip(again, new, ways["majority of three"], strict=True)
        ]
    return ways


def rollout(question: Question, texts: Sequence[str]) -> Rollout:
    return Rollout(question.id, question.hash, tuple(map(Completion.of, texts)), "me", 1)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean, by resampling questions."""
    random = Random(0)
    means = sorted(fmean(random.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    return means[RESAMPLES // 40], means[-RESAMPLES // 40 - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="what `shoal run --model` takes, or a checkpoint's folder")
    parser.add_argument("--suite", default="reef")
    parser.add_argument("--per-task", type=int, default=16, help="held-out questions of each task")
    parser.add_argument("--seeds", type=int, default=1, help="repeats, with other questions and samples")
    parser.add_argument("--max-completion-length", type=int, default=24)
    parser.add_argument("--out", type=Path, help="where to write the rewards of every question, as JSON")
    given = parser.parse_args()
    config = Config.model_validate({"tasks": {"suite": given.suite}}).resolved()
    tasks = Tasks(config.tasks)
    policy = LanguagePolicy(given.model, Sampling(max_completion_length=given.max_completion_length))
    rewards: dict[str, list[float]] = {}
    with Verifier(config.tasks) as verifier:
        for seed in range(given.seeds):
            asked = [question for group in tasks.held_out(given.per_task, seed).values() for question in group]
            ways = answer_in_all_ways(policy, asked, seed, lambda what, seed=seed: print(f"seed {seed}: {what}"))  # type: ignore[misc]
            for way, texts in ways.items():
                scored = verifier.score([(question.id, [text]) for question, text in zip(asked, texts, strict=True)])
                rewards.setdefault(way, []).extend(value for [value] in scored)
    print(f"\n{len(rewards[AGAINST])} questions\n")
    print(f"{'way':<24}right   against {AGAINST}")
    for way, values in rewards.items():
        low, high = interval([a - b for a, b in zip(values, rewards[AGAINST], strict=True)])
        against = "" if way == AGAINST else f"{fmean(values) - fmean(rewards[AGAINST]):+.3f} [{low:+.3f}, {high:+.3f}]"
        print(f"{way:<24}{fmean(values):.3f}   {against}".rstrip())
    if given.out:
        given.out.write_text(json.dumps(rewards))


if __name__ == "__main__":
    main()
