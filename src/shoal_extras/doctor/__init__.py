"""`shoal doctor`: what this machine can do, and what a run would take of it."""
