"""The metrics of an update, summed over micro-batches."""

import torch

from shoal.parallel.ranks import Ranks


class Sums:
    """Sums of metrics. They are read from the device once, at the end."""

    def __init__(self) -> None:
        self.tokens = 0
        self.tried = 0
        """Optimizer steps, with those whose gradient was not finite: losses are means over these."""
        self.steps = 0
        """The steps that were applied."""
        self.sums: dict[str, torch.Tensor] = {}

    def add(self, tokens: int = 0, **values: torch.Tensor) -> None:
        self.tokens += tokens
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value.detach()

    def gather(self, ranks: Ranks) -> None:
        """Adds the sums of the other ranks. The norm of the gradient is the same on all."""
        if ranks.size == 1:
            return
        mine = {name: float(value) for name, value in self.sums.items()}
        everyone = ranks.each((self.tokens, mine))
        self.tokens = sum(tokens for tokens, _ in everyone)
        for name in {name for _, sums in everyone for name in sums} - {"grad_norm"}:
            self.sums[name] = torch.tensor(sum(s.get(name, 0.0) for _, s in everyone), dtype=torch.float64)

    def means(self, skipped_steps: int) -> dict[str, float]:
        """Metrics with TRL's names."""
        sums = {name: float(value) for name, value in self.sums.items()}
        tokens, steps = max(self.tokens, 1), max(self.steps, 1)
        tried = max(self.tried, 1)
        return {
            "loss": sums.get("loss", 0.0) / tried,
            "grad_norm": sums.get("grad_norm", 0.0) / steps,
            "entropy": sums.get("entropy", 0.0) / tokens,
            "clip_ratio/low_mean": sums.get("low", 0.0) / tokens,
            "clip_ratio/high_mean": sums.get("high", 0.0) / tokens,
            "tokens/trained": self.tokens,
            "learner/steps": self.steps,
            "learner/skipped_steps": skipped_steps,
        }
