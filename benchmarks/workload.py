"""What every contender gets: a model folder, and questions of the `paper` suite as chats.

python benchmarks/workload.py OUT       # OUT/model, OUT/workload.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

QUESTIONS, GENERATIONS, LENGTH = 8, 8, 32
SEED = "benchmark"
GGUF = Path(__file__).parent.parent / "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def make(out: Path) -> None:
    """Writes the workload into `out`."""
    import torch

    from shoal.config.tasks import TasksConfig
    from shoal.policy.loading import load
    from shoal.tasks import Tasks

    if not GGUF.is_file():
        sys.exit(f"{GGUF} is missing: python scripts/fetch_models.py smollm2")
    lm = load(str(GGUF), torch.device("cpu"))
    lm.save(out / "model")
    questions = Tasks(TasksConfig(suite="paper")).draw(QUESTIONS, SEED)
    # Without the system prompt, as in TRL's and GenRL's own examples of reasoning-gym: it would be the same for all.
    chats = [[{"role": "user", "content": question.text}] for question in questions]
    (out / "workload.json").write_text(json.dumps({"chats": chats}))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
