"""How nodes share rollouts: within one process, or over a network of strangers."""
