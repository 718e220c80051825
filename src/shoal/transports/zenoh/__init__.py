"""A live swarm over Eclipse Zenoh."""
