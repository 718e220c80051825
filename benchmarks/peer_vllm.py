"""vLLM on the decoding of `decode.py`, in vLLM's own environment, in bfloat16: tokens a second.

python peer_vllm.py WORKLOAD OUT.json [--device cuda]
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

from vllm import LLM, SamplingParams

LENGTH, EVERY, REPEATS = 128, 40, 3  # as in decode.py

workload, out = Path(sys.argv[1]), Path(sys.argv[2])
chats = json.loads((workload / "workload.json").read_text())["chats"]
llm = LLM(model=str(workload / "model"), dtype="bfloat16", generation_config="vllm", gpu_memory_utilization=0.5)
stops = list(range(0, llm.llm_engine.model_config.get_vocab_size(), EVERY))
rates = []
for repeat in range(REPEATS + 1):  # the first warms up
    llm.reset_prefix_cache()
    sampling = SamplingParams(n=8, temperature=1.0, max_tokens=LENGTH, stop_token_ids=stops, seed=repeat)
    start = time.perf_counter()
    answers = llm.chat(chats, sampling, use_tqdm=False)
    seconds = time.perf_counter() - start
    rates.append(sum(len(o.token_ids) for answer in answers for o in answer.outputs) / seconds)
out.write_text(json.dumps({"figures": {"tokens_per_second": statistics.median(rates[1:])}}))
