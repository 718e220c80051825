"""Decoding of 64 sequences of uneven length: shoal, transformers' `generate`, and what bounds both.

    python decode.py WORKLOAD OUT.json [--repeats N] [--device cuda]

Lengths are uneven because one token of forty ends a completion, up to 128; a rate counts the tokens up to there. On a
processor the bound is the matrix products alone, by torch's default product and by the one that shoal takes
(`policy/products.py`); on a GPU it is the reading of weights, keys and values (`bandwidth.py`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from bandwidth import copy_bandwidth

from shoal.policy.decoders.base import Sampling
from shoal.policy.decoders.own import cache_bytes_per_token, sample
from shoal.policy.device import place
from shoal.policy.loading import load
from shoal.policy.products import use_fast_products

LENGTH, EVERY = 128, 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(2)
    placement = place(args.device)
    cuda = args.device == "cuda"
    lm, plain = (load(str(args.workload / "model"), placement.device) for _ in range(2))
    lm.model.eval()
    use_fast_products(lm.model, placement.device)
    plain.model.eval().to(placement.dtype)
    chats = json.loads((args.workload / "workload.json").read_text())["chats"]
    prompts = [lm.tokenizer.apply_chat_template(c, add_generation_prompt=True, return_dict=False) for c in chats]
    stops = list(range(0, lm.model.config.vocab_size, EVERY))
    lm.tokenizer.padding_side = "left"
    padded = lm.tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
    padded = {
        name: padded[name].repeat_interleave(8, 0).to(placement.device) for name in ("input_ids", "attention_mask")
    }

    def ours(seed: int) -> tuple[int, float, list[int]]:
        start = time.perf_counter()
        groups = sample(
            lm.model, prompts, 8, Sampling(1.0, 1.0, LENGTH), frozenset(stops), placement, range(8 * seed, 8 * seed + 8)
        )
        seconds = time.perf_counter() - start
        lengths = [len(s.token_ids) for group in groups for s in group]
        return sum(lengths), seconds, [sum(length > t for length in lengths) for t in range(max(lengths))]

    def theirs(seed: int) -> tuple[int, float]:
        torch.manual_seed(seed)
        start = time.perf_counter()
        with torch.inference_mode():
            out = plain.model.generate(
                **padded, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=LENGTH,
                eos_token_id=stops, pad_token_id=lm.pad_id,
            )  # fmt: skip
        seconds = time.perf_counter() - start
        tokens = 0
        for row in out[:, padded["input_ids"].shape[1] :].tolist():
            ends = [i for i, token in enumerate(row) if token % EVERY == 0]
            tokens += ends[0] + 1 if ends else len(row)
        return tokens, seconds

    @torch.inference_mode()
    def products(rows: int, layers: list[torch.nn.Linear]) -> float:
        inputs = [torch.randn(rows, layer.in_features) for layer in layers]
        start = time.perf_counter()
        for layer, x in zip(layers, inputs, strict=True):
            layer(x)
        return time.perf_counter() - start

    def bound(model: Any, living: list[int]) -> float:
        """Seconds of the matrix products that this run needed: the prompts once, then every living row."""
        known: dict[int, float] = {}
        head = model.get_output_embeddings()
        linears = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
        body = [layer for layer in linears if layer is not head]
        seconds = sum(products(len(prompt), body) for prompt in prompts) + products(len(prompts), [head])
        for rows in living[:-1]:
            bucket = -(-rows // 4) * 4
            if bucket not in known:
                known[bucket] = statistics.median(products(bucket, linears) for _ in range(3))
            seconds += known[bucket] * rows / bucket
        return seconds

    weight_bytes = placement.dtype.itemsize * sum(
        m.weight.numel() for m in lm.model.modules() if isinstance(m, torch.nn.Linear)
    )
    token_bytes = cache_bytes_per_token(lm.model) * placement.dtype.itemsize // 4
    bandwidth = copy_bandwidth(placement.device) if cuda else 0.0

    def memory_bound(living: list[int]) -> float:
        """Seconds to read, in each step, the weights, the prompts' keys and values and those of living completions."""
        prompt_bytes = token_bytes * sum(map(len, prompts))
        return sum(weight_bytes + prompt_bytes + token_bytes * B * T for T, B in enumerate(living[:-1])) / bandwidth

    rates: dict[str, list[float]] = defaultdict(list)
    ours(args.repeats)  # the first times warm up
    theirs(args.repeats)
    for repeat in range(args.repeats):
        tokens, seconds, living = ours(repeat)
        rates["ours"].append(tokens / seconds)
        if cuda:
            rates["memory bound"].append(tokens / memory_bound(living))
        else:
            rates["bound"].append(tokens / bound(plain.model, living))
            rates["own bound"].append(tokens / bound(lm.model, living))
        tokens, seconds = theirs(repeat)
        rates["theirs"].append(tokens / seconds)
    args.out.write_text(json.dumps({name: statistics.median(values) for name, values in rates.items()}))


if __name__ == "__main__":
    main()
