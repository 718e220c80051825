"""Decoding by both engines in one process, in turn: tokens a second, and the weights' handing over to vLLM.

    python engines.py MODEL OUT.json [--prompts N] [--answers N] [--length N] [--threads N] [--repeats N]

Needs vLLM beside shoal (CONTRIBUTING.md). Ratios are of neighbours in time, so that what else the machine does counts
little; seconds of the processor are given beside those of the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import torch

from shoal.policy.decoders.base import Sampling
from shoal.policy.device import place
from shoal.policy.language import LanguagePolicy
from shoal.rollout import Message, Question, QuestionId
from shoal_extras.vllm import VLLMDecoder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    for name, default in (("prompts", 8), ("answers", 8), ("length", 64), ("threads", 2), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    sampling = Sampling(max_completion_length=args.length)
    vllm = LanguagePolicy(args.model, sampling, place(dtype="float32"), decoder=VLLMDecoder)
    own = LanguagePolicy(vllm.lm, sampling, vllm.placement)
    texts = [f"Write a long story about {number + 2} ships and a whale." for number in range(args.prompts)]
    questions = [
        Question(QuestionId("ships", "1", "", 0, number), (Message("user", text),)) for number, text in enumerate(texts)
    ]

    def measured(policy: LanguagePolicy, seed: int) -> dict[str, float]:
        """Tokens a second of the clock and of the processor."""
        clock, processor = time.perf_counter(), time.process_time()
        groups = policy.generate(questions, args.answers, seed)
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        tokens = sum(len(answer.token_ids or ()) for group in groups for answer in group)
        return {"clock": tokens / clock, "processor": tokens / processor}

    found: dict[str, list[dict[str, float]]] = {"own": [], "vllm": []}
    for repeat in range(args.repeats + 1):
        for name, policy in (("own", own), ("vllm", vllm)):
            figures = measured(policy, repeat)
            if repeat:  # the first warms up
                found[name].append(figures)
                print(f"{name:5} {figures['clock']:7.0f} tokens/s {figures['processor']:7.0f} a processor's second")
    start = time.process_time()
    vllm.decoder.update_weights()
    result: dict[str, object] = {
        "load": os.getloadavg()[0],
        "handing over (processor's seconds)": time.process_time() - start,
        "runs": found,
    }
    for unit in ("clock", "processor"):
        ratios = [mine[unit] / theirs[unit] for mine, theirs in zip(found["own"], found["vllm"], strict=True)]
        result[f"own / vllm ({unit})"] = statistics.median(ratios)
    args.out.write_text(json.dumps(result, indent=1))
    print({name: value for name, value in result.items() if name != "runs"})


if __name__ == "__main__":
    main()
