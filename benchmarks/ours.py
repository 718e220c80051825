"""shoal on the workload: seconds of a round and of the update on a given batch, peak memory.

    python ours.py WORKLOAD OUT.json [--batch TRL.json] [--repeats N] [--device cuda]

With `--batch` it learns from exactly what TRL learned from; otherwise from what it generated. The bound of matrix
products is measured twice: with torch's default product, and with the one that shoal takes (`policy/products.py`).
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.learn.learner import GRPOLearner
from shoal.policy.decoders.base import Sampling
from shoal.policy.device import place
from shoal.policy.language import LanguagePolicy
from shoal.policy.products import FastLinear
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


def bound(policy: LanguagePolicy, groups: list[Scored], own: bool) -> float:
    """Seconds of the matrix products that the update needs, forward and backward, at the rate that they are measured
    at: each prompt token and each completion token but the last once, the head for trained tokens. `own`: by shoal's
    layers as they are, else by torch's default product."""
    head = policy.lm.model.get_output_embeddings()
    body = [m for m in policy.lm.model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    lengths = [len(c.token_ids or ()) for g in groups for c in g.rollout.completions]
    tokens = sum(len(policy.prompt_ids(g.question)) for g in groups) + sum(lengths) - len(lengths)
    dtype = policy.placement.dtype
    return products(body, tokens, own, dtype) + products([head], sum(lengths), own, dtype)


def products(layers: list[torch.nn.Linear], tokens: int, own: bool, dtype: torch.dtype, rows: int = 1024) -> float:
    """Seconds of the three products of each layer for `tokens` tokens, `rows` at a time, the median of three times."""
    timed = []
    for _ in range(4):  # the first sets things up
        total = 0.0
        for layer in layers:
            weight = layer.weight.detach().to(dtype)
            x, dy = weight.new_empty(rows, layer.in_features).normal_(), weight.new_empty(rows, len(weight)).normal_()
            if own and isinstance(layer, FastLinear):
                total += seconds(lambda x=x, dy=dy, layer=layer: layer(x.requires_grad_()).backward(dy))
                layer.zero_grad()
            else:
                total += seconds(lambda x=x, dy=dy, weight=weight: (x @ weight.T, dy @ weight, dy.T @ x))
        timed.append(total)
    return statistics.median(timed[1:]) * tokens / rows


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--batch", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(2)
    chats = json.loads((args.workload / "workload.json").read_text())["chats"]
    policy = Prompted(str(args.workload / "model"), Sampling(1.0, 1.0, 32), place(args.device))
    learner = GRPOLearner(policy, LearnerConfig(), PeersConfig(), 1e-6)
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
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if args.device == "cuda":
        figures["peak"] = torch.cuda.max_memory_allocated()
    for name, of_shoal in (("bound", False), ("own bound", True)):  # after the peak was read
        figures[name] = bound(policy, groups if args.batch else own, of_shoal)
    args.out.write_text(json.dumps({"figures": figures}))


if __name__ == "__main__":
    main()
