"""People, and programs that do not learn, in a swarm: `shoal human` (docs/guides/human.md)."""
