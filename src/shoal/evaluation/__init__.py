"""Held-out questions: pass@k, and the client of judges."""
