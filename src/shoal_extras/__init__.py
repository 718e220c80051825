"""What not every node needs: more tasks, TRL, GGUF and probes. The core finds them by entry points."""
