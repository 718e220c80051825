"""One engine that decodes, in an environment of its own: it reads works from standard input and writes what they took.

    python benchmarks/decoder.py ENGINE MODEL FORMAT THREADS

A work is a line `{"prompts": [[token, ...], ...], "generations": G, "length": T, "seed": n}`: G completions of T tokens
of each prompt, at temperature 1. The answer is a line `{"tokens": n, "seconds": s, "processor": s}`.
`benchmarks/decoders.py` runs several in turns.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

THREADS = int(sys.argv[4])
os.environ.update(
    OMP_NUM_THREADS=str(THREADS), HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_CPU_KVCACHE_SPACE="2",
)  # fmt: skip


class Shoal:
    def __init__(self, model: str, format: str) -> None:
        import torch

        from shoal.policy.device import place
        from shoal.policy.loading import load
        from shoal.policy.products import use_fast_products

        torch.set_num_threads(THREADS)
        self.placement = place("cpu", format)
        self.model = load(model, self.placement.device).model.eval()
        use_fast_products(self.model, self.placement.device)

    def generate(self, prompts: list[list[int]], generations: int, length: int, seed: int) -> int:
        from shoal.policy.decoders.base import Sampling
        from shoal.policy.decoders.own import sample
        from shoal.policy.products import cast_once

        seeds = range(seed, seed + len(prompts))
        sampling = Sampling(max_completion_length=length)
        with cast_once(self.model, self.placement):
            groups = sample(self.model, prompts, generations, sampling, frozenset(), self.placement, seeds)
        return sum(len(sampled.token_ids) for group in groups for sampled in group)


class Transformers:
    def __init__(self, model: str, format: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(THREADS)
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, format)).eval()
        self.model.generation_config.eos_token_id = None  # no answer ends early

    def generate(self, prompts: list[list[int]], generations: int, length: int, seed: int) -> int:
        import torch

        torch.manual_seed(seed)
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with torch.inference_mode():
            out = self.model.generate(
                ids.repeat_interleave(generations, 0), attention_mask=mask.repeat_interleave(generations, 0),
                do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=length, pad_token_id=0,
            )  # fmt: skip
        return int(out[:, longest:].numel())


class LlamaCpp:
    """Its server, without a socket. A request for several completions reads its prompt once."""

    def __init__(self, model: str, format: str) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = f"{model}.{format}.gguf"
        params.n_parallel, params.n_ctx, params.kv_unified = 64, 65536, True
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
        params.cache_ram_mib = 0
        params.warmup = False
        params.verbosity = 0
        self.server = xllamacpp.Server(params)

    def generate(self, prompts: list[list[int]], generations: int, length: int, seed: int) -> int:
        tokens: list[int] = []

        def ask(number: int) -> None:
            request = {
                "prompt": prompts[number], "n": generations, "max_tokens": length, "temperature": 1.0,
                "samplers": ["temperature"], "ignore_eos": True, "cache_prompt": False, "seed": seed + number,
            }  # fmt: skip
            answer = self.server.handle_completions(request)
            assert len(answer["choices"]) == generations, answer
            assert answer["usage"]["completion_tokens"] == length, answer
            tokens.append(generations * length)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(tokens)


class VLLM:
    def __init__(self, model: str, format: str) -> None:
        from vllm import LLM

        self.llm = LLM(model, dtype=format, max_model_len=2048, generation_config="vllm")

    def generate(self, prompts: list[list[int]], generations: int, length: int, seed: int) -> int:
        from vllm import SamplingParams

        self.llm.reset_prefix_cache()  # a policy has other weights in each round
        sampling = SamplingParams(
            n=generations, temperature=1.0, max_tokens=length, ignore_eos=True, detokenize=False
        )  # without a seed, which would make it slower
        answers = self.llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
        return sum(len(output.token_ids) for answer in answers for output in answer.outputs)


ENGINES: dict[str, Any] = {"shoal": Shoal, "transformers": Transformers, "llama.cpp": LlamaCpp, "vllm": VLLM}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    engine = ENGINES[sys.argv[1]](sys.argv[2], sys.argv[3])
    print("{}", file=answers, flush=True)  # ready
    for line in sys.stdin:
        start, processor = time.perf_counter(), time.process_time()
        tokens = engine.generate(**json.loads(line))
        took = {"seconds": time.perf_counter() - start, "processor": time.process_time() - processor}
        print(json.dumps({"tokens": tokens, **took}), file=answers, flush=True)


if __name__ == "__main__":
    main()
