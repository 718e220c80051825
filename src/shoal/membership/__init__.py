"""A node's place in a swarm of strangers."""
