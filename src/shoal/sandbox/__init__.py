"""Where strangers' text is scored: a process that can do nothing else."""
