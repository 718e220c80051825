"""What not every node needs: more tasks, GGUF, probes and harnesses. The core finds them by entry points."""
