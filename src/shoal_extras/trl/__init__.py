"""A stock GRPOTrainer of TRL as a node of a swarm.

    from trl import GRPOConfig, GRPOTrainer
    from shoal_extras.trl import TRLNode

    with TRLNode(connect="relay.example.org:7447", swarm="lagoon", suite="reef") as node:
        args = GRPOConfig(max_steps=200, num_generations=8, per_device_train_batch_size=64)
        GRPOTrainer("Qwen/Qwen3-0.6B", args=args, **node.hooks).train()

The trainer answers questions of shoal's tasks, shares its answers, and trains on own and peers' rollouts. TRL makes
the advantages, the loss and the step, and saves the model. It is for TRL 1.x (1.0.0 and 1.16.0 are tested), by public
hooks alone. See docs/guides/trl.md.
"""

from shoal_extras.trl.node import TRLNode

__all__ = ["TRLNode"]
