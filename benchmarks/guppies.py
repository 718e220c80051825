"""A round of 8 guppies (I = 4, J = 4, G = 8 on `pond`): shoal on both cores, and a plain loop over the nodes.

    python guppies.py WORKLOAD OUT.json [--repeats N]

The plain loop is what one would write first: transformers' `generate` on one padded batch for each node, one padded
batch of all 64 completions for the update, one thread. Both share tasks, verifier, pool and sampling, and alternate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from shoal.config.load import make_config
from shoal.learn.advantages import advantages
from shoal.policy.language import LanguagePolicy
from shoal.protocols import UpdateResult
from shoal.rollout import Completion, Question, Scored
from shoal.runs.build import Nodes

CONFIG = {"round": {"nodes": 8}, "evaluation": {"every": 0, "questions": 1, "samples": 1}, "seed": 7}
ROUNDS = 10


class PlainPolicy(LanguagePolicy):
    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        tokenizer: Any = self.lm.tokenizer
        tokenizer.padding_side = "left"
        batch = tokenizer.pad({"input_ids": [self.prompt_ids(q) for q in questions]}, return_tensors="pt")
        torch.manual_seed(seed)
        with torch.inference_mode():
            out = self.lm.model.generate(
                **batch, do_sample=True, top_k=0, max_new_tokens=self.sampling.max_completion_length,
                num_return_sequences=num_generations, eos_token_id=list(self.lm.stop_ids), pad_token_id=self.lm.pad_id,
            )  # fmt: skip
        rows = out[:, batch["input_ids"].shape[1] :].tolist()
        completions = []
        for row in rows:
            ends = [i for i, token in enumerate(row) if token in self.lm.stop_ids]
            completions.append(self._completion(row[: ends[0] + 1] if ends else row, bool(ends)))
        return [tuple(completions[i : i + num_generations]) for i in range(0, len(rows), num_generations)]


class PlainLearner:
    def __init__(self, policy: LanguagePolicy, learning_rate: float) -> None:
        self.policy = policy
        self.optimizer = torch.optim.AdamW(policy.lm.model.parameters(), lr=learning_rate, weight_decay=0)

    def update(self, scored: Sequence[Scored], seed: int = 0) -> UpdateResult:
        policy, rows, limits, found = self.policy, [], [], []
        for s in scored:
            prompt = policy.prompt_ids(s.question)
            for c, advantage in zip(s.rollout.completions, advantages([s.rewards], "none")[0], strict=True):
                rows.append(prompt + policy.completion_ids(c))
                limits.append(len(prompt))
                found.append(advantage)
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        mask = torch.tensor(
            [[float(n <= i < len(row)) for i in range(1, width)] for row, n in zip(rows, limits, strict=True)]
        )
        attention = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        logits = policy.lm.model(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1]
        logps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        loss = -(torch.tensor(found)[:, None] * logps * mask).sum() / (len(rows) * 16)
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(policy.lm.model.parameters(), 1.0)
        self.optimizer.step()
        return UpdateResult({"loss": loss.item(), "grad_norm": norm.item()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    config = make_config(CONFIG, "benchmark")
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    runs: dict[str, Nodes] = {}
    for kind in seconds:
        chosen = config.model_copy(deep=True)
        chosen.round.workers = 0 if kind == "plain" else "auto"
        runs[kind] = Nodes(chosen)
    for node in runs["plain"].nodes:
        node.policy = PlainPolicy(node.policy.lm, node.policy.sampling, node.policy.placement)
        node.learner = PlainLearner(node.policy, 2e-4)  # type: ignore[assignment]
    for _ in range(args.repeats + 1):  # the first warms up
        for kind, run in runs.items():
            torch.set_num_threads(1 if kind == "plain" else 2)
            start = time.perf_counter()
            for _round in range(ROUNDS):
                run.each(node.act for node in run.nodes)
                run.each(node.learn for node in run.nodes)
            seconds[kind].append((time.perf_counter() - start) / ROUNDS)
    for run in runs.values():
        run.close()
    args.out.write_text(json.dumps({kind: statistics.median(times[1:]) for kind, times in seconds.items()}))


if __name__ == "__main__":
    main()
