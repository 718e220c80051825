"""Collective reinforcement learning of language models: nodes that share what they tried, not their weights."""

__version__ = "0.1.0"
