"""Evaluation on held-out questions: a node's own pass@k, and the client of judges (third parties that ask)."""
