"""Archives: what a swarm shared, kept in a folder that anybody can verify and learn from later."""
