"""Controlled experiments: what a swarm run is measured by, and what may be concluded from several.

`measures` turns the rows of one run's `metrics.jsonl` into figures; `contrasts` compares arms over seeds.
"""
