"""What three worked examples before each question cost: an evaluation and a round of training, with and without them.

    python benchmarks/prefix.py [evaluation] [round] [--repeats N] [--tasks N] [--json] [--baseline]

Questions are of seven tasks in turn, or of fewer; those of a task share its examples. An evaluation asks 64 questions,
4 samples of 32 tokens each. A round answers I = 4 questions, 8 completions of 32 tokens each, and learns from these and
from J = 4 more such rollouts. Seconds are of processor time of one thread, for others may be at work; with and without
take turns, and a ratio is the median of the pairs'. `--baseline`: with sharing turned off.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from shoal.learn import batch as batching
from shoal.learn.learner import GRPOLearner
from shoal.policy.decoders import own
from shoal.policy.families import Family
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load
from shoal.rollout import Completion, FinishReason, Message, Part, Question, Rollout, Scored, seed_of
from shoal.tasks.reasoning import ReasoningTask

GGUF = Path(__file__).parent.parent / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
NAMES = ["chain_sum", "products", "gcd", "count_bits", "simple_equations", "leg_counting", "letter_counting"]
TASKS = [ReasoningTask(name, {}) for name in NAMES]
SYSTEM = "Answer the question. Give the final answer between <answer> and </answer>."
SEED = "benchmark"


def make_questions(tasks: Sequence[ReasoningTask], count: int, examples: int, first: int = 0) -> list[Question]:
    """`count` questions, of each task in turn, with so many worked examples of their task before each."""
    found = []
    for number in range(first, first + count):
        task = tasks[number % len(tasks)]
        turns = [Message("system", SYSTEM)]
        for place in range(examples):
            entry = task.entry(seed_of(SEED, "example"), place)
            turns += [Message("user", entry["question"]), Message("assistant", f"<answer>{entry['answer']}</answer>")]
        asked = task.question(seed_of(SEED), number)
        found.append(Question(asked.id, (*turns, *asked.prompt)))
    return found


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of processor time, and what `work` gives."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", choices=["evaluation", "round", []], help="default: both")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=len(NAMES), help="how many tasks the questions are of")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--baseline", action="store_true")
    parser.add_argument("--model", default=str(GGUF))
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.baseline:
        for module in (own, batching):
            module.families = lambda prompts: [Family(tuple(range(len(prompts))), 0)]  # type: ignore[attr-defined]
    endless = replace(load(args.model, torch.device("cpu")), stop_ids=frozenset())  # all answers have the same length
    bench = Bench(LanguagePolicy(endless, max_completion_length=32), args.tasks)
    figures: dict[str, float] = {}
    for work in args.works or ["evaluation", "round"]:
        pairs = []
        for repeat in range(1, args.repeats + 1):
            pairs.append([getattr(bench, work)(examples, repeat) for examples in (0, 3)])
            print(work, pairs[-1], file=sys.stderr)
        for part in pairs[0][0]:
            without, among = ([pair[i][part] for pair in pairs] for i in (0, 1))
            figures[f"{part}, 0 examples"] = round(statistics.median(without), 3)
            figures[f"{part}, 3 examples"] = round(statistics.median(among), 3)
            ratio = statistics.median(b / a for a, b in zip(without, among, strict=True))
            figures[f"{part}, with / without"] = round(ratio, 3)
    print(json.dumps(figures) if args.json else "\n".join(f"{name:36}{value:9.3f}" for name, value in figures.items()))


class Bench:
    """The two kinds of work, in seconds."""

    def __init__(self, policy: LanguagePolicy, tasks: int) -> None:
        self.policy, self.tasks = policy, TASKS[:tasks]
        policy.generate(make_questions(TASKS, 2, 0), 2, 0)  # the first sets things up

    @cached_property
    def learner(self) -> GRPOLearner:
        learner = GRPOLearner(self.policy, learning_rate=1e-9)
        few = make_questions(TASKS, 2, 0)
        learner.update(scored(few, self.policy.generate(few, 2, 0)))  # so does the first update
        return learner

    def evaluation(self, examples: int, seed: int) -> dict[str, float]:
        questions = make_questions(self.tasks, 64, examples)
        seconds, _ = timed(lambda: self.policy.generate(questions, 4, seed))
        tokens = sum(len(self.policy.prompt_ids(question)) for question in questions)
        return {"prompt tokens of an evaluation": tokens, "evaluation": seconds}

    def round(self, examples: int, seed: int) -> dict[str, float]:
        own, others = (make_questions(self.tasks, 4, examples, 64 + 8 * seed + first) for first in (0, 4))
        answering, groups = timed(lambda: self.policy.generate(own, 8, seed))
        batch = scored(own, groups) + scored(others, groups)  # whose tokens do not matter here
        learner = self.learner
        update, _ = timed(lambda: learner.update(batch, seed))
        return {"answering": answering, "update": update, "round": answering + update}


def scored(questions: list[Question], groups: list[tuple[Completion, ...]]) -> list[Scored]:
    """Rollouts of which every other completion is right, so that all of them are learned from."""
    found = []
    for question, group in zip(questions, groups, strict=True):
        completions = tuple(Completion((Part(""),), FinishReason.length, c.token_ids) for c in group)
        rollout = Rollout(question.id, question.hash, completions, "ours", 1)
        found.append(Scored(rollout, question, tuple(float(i % 2) for i in range(len(group)))))
    return found


if __name__ == "__main__":
    main()
