"""A stock GRPOTrainer of TRL in a swarm: it trains on its own answers and on those of other nodes.

    pip install -c constraints.txt -e '.[trl,host]'    # in a clone of shoal
    shoal relay                                        # on one machine
    shoal join 127.0.0.1:7447 --swarm lagoon --suite pond    # any other nodes
    python examples/trl_swarm.py 127.0.0.1:7447

Without an address it looks for nodes on the local network; alone it trains on its own answers. Two of them on one
machine need an identity each: SHOAL_HOME=~/.shoal-2 python examples/trl_swarm.py
"""

from __future__ import annotations

import os
import sys
from importlib.resources import files
from typing import Any

from trl import GRPOConfig, GRPOTrainer

from shoal_extras.trl import TRLNode

STEPS = 150  # long enough that the second one, in another terminal, comes in time
GUPPY = str(files("shoal") / "guppy")  # any model that transformers loads


def main(connect: list[str]) -> list[dict[str, Any]]:
    args = GRPOConfig(
        output_dir=f"trl-swarm-{os.getpid()}",  # two trainers in one folder would write the same files
        max_steps=STEPS,
        num_generations=8,  # G, the same for all nodes
        per_device_train_batch_size=64,  # 8 groups of 8: at most 4 of them peers'
        max_completion_length=16,
        learning_rate=2e-4,
        use_cpu=True,
        bf16=False,
        logging_steps=max(1, STEPS // 30),
        report_to="none",
        disable_tqdm=True,
    )
    with TRLNode(connect=connect, swarm="lagoon", suite="pond", peers=4) as node:
        trainer = GRPOTrainer(GUPPY, args=args, **node.hooks)
        trainer.train()
        trainer.save_model()
        print(f"the model: shoal ask {args.output_dir} 'Calculate 7 + 8.'")
    rows = [row for row in trainer.state.log_history if "reward/local" in row]
    every = max(1, len(rows) // 10)
    for row in rows[(len(rows) - 1) % every :: every]:
        peers = f"{row['rollouts/sampled']:.0f} groups of others"
        peers += f", mean reward {row['reward/peers']:.2f}" if row.get("reward/peers") is not None else ""
        print(f"step {row['step']:3}  own mean reward {row['reward/local']:.3f}  {peers}")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
