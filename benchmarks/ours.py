"""shoal on the workload: seconds of a round and of the update on a given batch, peak memory.

    python ours.py WORKLOAD OUT.json [--batch TRL.json] [--repeats N]

With `--batch` it learns from exactly what TRL learned from; otherwise from what it generated.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from pathlib import Path

import torch

from shoal.config import LearnerConfig
from shoal.learn.learner import GRPOLearner
from shoal.policy.device import place
from shoal.policy.draw import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.rollout import Completion, FinishReason, Message, Part, Question, QuestionId, Rollout, Scored


class Prompted(LanguagePolicy):
    """Takes a question's prompt as the tokens that its text is a list of, so that all contenders read the same."""

    def prompt_ids(self, question: Question) -> list[int]:
        text = question.text
        return json.loads(text) if text.startswith("[") else super().prompt_ids(question)


def scored(prompt: str, answers: list[Completion], number: int) -> Scored:
    question = Question(QuestionId("t", "1", "c", 0, number), (Message("user", prompt),))
    rollout = Rollout(question.id, question.hash, tuple(answers), "ours", 1)
    return Scored(rollout, question, tuple(float(i % 2) for i in range(len(answers))))


def completion(ids: list[int]) -> Completion:
    return Completion((Part(""),), FinishReason.length, tuple(ids))


def bound(policy: LanguagePolicy, groups: list[Scored]) -> float:
    """Seconds of the matrix products that the update needs, forward and backward, at the rate that they are measured
    at: each prompt token and each completion token but the last once, the head for trained tokens."""
    head = policy.lm.model.get_output_embeddings()
    body = [m for m in policy.lm.model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    lengths = [len(c.token_ids or ()) for g in groups for c in g.rollout.completions]
    tokens = sum(len(policy.prompt_ids(g.question)) for g in groups) + sum(lengths) - len(lengths)
    return products(body, tokens) + products([head], sum(lengths))


def products(layers: list[torch.nn.Linear], tokens: int, rows: int = 1024) -> float:
    """Seconds of the three products of each layer for `tokens` tokens, `rows` at a time, the median of three times."""
    timed = []
    with torch.no_grad():
        for _ in range(3):
            total = 0.0
            for layer in layers:
                x, dy = torch.randn(rows, layer.in_features), torch.randn(rows, layer.out_features)
                start = time.perf_counter()
                x @ layer.weight.T
                dy @ layer.weight
                dy.T @ x
                total += time.perf_counter() - start
            timed.append(total)
    return statistics.median(timed) * tokens / rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--batch", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(2)
    chats = json.loads((args.workload / "workload.json").read_text())["chats"]
    policy = Prompted(str(args.workload / "model"), Sampling(1.0, 1.0, 32), place())
    learner = GRPOLearner(policy, LearnerConfig(), 1e-6)
    if args.batch:
        batch = json.loads(args.batch.read_text())["batch"]
        groups = [
            scored(
                json.dumps(batch["prompt"][row]), [completion(ids) for ids in batch["completion"][row : row + 8]], row
            )
            for row in range(0, len(batch["prompt"]), 8)
        ]
    generate, learn = [], []
    for repeat in range(args.repeats):
        start = time.perf_counter()
        questions = [
            Question(QuestionId("t", "1", "c", 0, i), (Message("user", c[0]["content"]),)) for i, c in enumerate(chats)
        ]
        answers = policy.generate(questions, 8, repeat)
        generated = time.perf_counter()
        own = [scored(q.text, list(a), i) for i, (q, a) in enumerate(zip(questions, answers, strict=True))]
        learner.update(groups if args.batch else own, repeat)
        generate.append(generated - start)
        learn.append(time.perf_counter() - generated)
    figures = {
        "generate": statistics.median(generate),
        "learn": statistics.median(learn),
        "bound": bound(policy, groups if args.batch else own),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    args.out.write_text(json.dumps({"figures": figures}))


if __name__ == "__main__":
    main()
