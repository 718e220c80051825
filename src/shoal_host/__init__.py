"""What a host of a swarm runs: a relay, a judge, and both in one command, `shoal host`."""
