"""A node's key and name, and the secret of a private swarm."""
