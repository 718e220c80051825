"""What a host of a swarm runs: relay, judge, directory, and all of them in one command, `shoal host`."""
