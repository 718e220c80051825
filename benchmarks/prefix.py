"""What three worked examples before each question cost: an evaluation and a round of training, with and without them.

    python benchmarks/prefix.py [--repeats N] [--json] [--baseline]

Questions are of seven tasks; the questions of a task share its examples, as earlier turns. An evaluation asks 64
questions, 4 samples of 32 tokens each. A round answers I = 4 questions, 8 completions of 32 tokens each, and learns
from these and from J = 4 more such rollouts. Seconds are of processor time of one thread, for others may be at work;
with and without take turns, and a ratio is the median of the pairs'. `--baseline`: with sharing turned off.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from shoal.learn import batch as batching
from shoal.learn.learner import GRPOLearner
from shoal.policy import decode
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


def make_questions(count: int, examples: int, first: int = 0) -> list[Question]:
    """`count` questions, of each task in turn, with so many worked examples of their task before each."""
    found = []
    for number in range(first, first + count):
        task = TASKS[number % len(TASKS)]
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
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--baseline", action="store_true")
    parser.add_argument("--model", default=str(GGUF))
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.baseline:
        for module in (decode, batching):
            module.families = lambda prompts: [Family(tuple(range(len(prompts))), 0)]  # type: ignore[attr-defined]
    endless = replace(load(args.model, torch.device("cpu")), stop_ids=frozenset())  # all answers have the same length
    policy = LanguagePolicy(endless, max_completion_length=32)
    learner = GRPOLearner(policy, learning_rate=1e-9)
    seconds: dict[str, list[float]] = {}
    for repeat in range(args.repeats + 1):
        for examples in (0, 3):
            held_out, own, others = (make_questions(n, examples, first) for n, first in ((64, 0), (4, 64), (4, 68)))
            tokens = sum(len(policy.prompt_ids(q)) for q in held_out) / len(held_out)
            foreign = scored(others, policy.generate(others, 8, repeat))
            took: dict[str, float] = {}
            took["evaluation"], _ = timed(lambda q=held_out, seed=repeat: policy.generate(q, 4, seed))
            took["answering"], groups = timed(lambda q=own, seed=repeat: policy.generate(q, 8, seed))
            batch = scored(own, groups) + foreign
            took["update"], _ = timed(lambda batch=batch, seed=repeat: learner.update(batch, seed))
            took["round"] = took["answering"] + took["update"]
            if repeat:  # the first sets things up
                for name, value in took.items():
                    seconds.setdefault(f"{name}, {examples} examples", []).append(value)
            seconds[f"prompt tokens, {examples} examples"] = [tokens]
    figures = {name: round(statistics.median(values), 3) for name, values in seconds.items()}
    for name in ("evaluation", "answering", "update", "round"):
        pairs = zip(seconds[f"{name}, 3 examples"], seconds[f"{name}, 0 examples"], strict=True)
        figures[f"{name}, with / without"] = round(statistics.median(a / b for a, b in pairs), 3)
    print(json.dumps(figures) if args.json else "\n".join(f"{name:36}{value:9.3f}" for name, value in figures.items()))


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
