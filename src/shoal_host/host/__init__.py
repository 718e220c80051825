"""`shoal host`: relay, judge and pages of a swarm as one supervised command with one folder."""
