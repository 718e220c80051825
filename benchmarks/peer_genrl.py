"""One round of GenRL's GRPO trainer on the workload, in GenRL's own environment: seconds to generate and to learn.

    python peer_genrl.py WORKLOAD OUT.json [--device cuda]

The trainer module's own `generate` and `step`, with what they ask of the game's state put in their hands.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from genrl.trainer.grpo_trainer import GRPOLanguageTrainerModule, GRPOTrainerConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

workload, out, cuda = Path(sys.argv[1]), Path(sys.argv[2]), "cuda" in sys.argv
chats = json.loads((workload / "workload.json").read_text())["chats"]
torch.set_num_threads(2)
torch.manual_seed(0)
# It has no autocast: on a GPU its own examples load weights in bfloat16.
model = AutoModelForCausalLM.from_pretrained(workload / "model", dtype=torch.bfloat16 if cuda else torch.float32)
model = model.to("cuda" if cuda else "cpu")
tokenizer = AutoTokenizer.from_pretrained(workload / "model", padding_side="left")
trainer = GRPOLanguageTrainerModule(
    [model],
    GRPOTrainerConfig(num_generations=8, max_new_tokens=32, minibatch_size=8, enable_gradient_checkpointing=False),
    processing_class=tokenizer,
    log_dir=str(out.with_suffix("")),
)
inputs = [{"prompt": chat} for chat in chats]
start = time.perf_counter()
answers = trainer.generate(inputs)
generated = time.perf_counter()
index = [(0, 0, i) for i in range(len(chats))]
state = SimpleNamespace(get_stage_state=lambda stage: inputs, get_stage_actions=lambda stage: {0: {0: answers}})
data = SimpleNamespace(prepare_input=lambda stage_inputs, stage: (stage_inputs, index))
rewards = [{0: {0: [[float(i % 2) for i in range(8)] for _ in chats]}}]
trainer.step(0, state, data, rewards, 0)
if cuda:
    torch.cuda.synchronize()
end = time.perf_counter()
peak = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
out.write_text(json.dumps({"figures": {"generate": generated - start, "learn": end - generated, "peak": peak}}))
