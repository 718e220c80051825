"""Scores strangers' text, in a process that can do nothing else."""
