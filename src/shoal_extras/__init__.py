"""What not every node needs: more tasks, TRL, GGUF, probes and harnesses. The core finds them by entry points."""
