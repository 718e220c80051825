"""Evaluation on held-out questions: by oneself (`evaluate`), or by a third party (`shoal judge`, docs/judge.md).

figures      pass@1 and pass@k with intervals: what a node says of itself
messages     what node and judge say to each other, signed both ways

A node's side:
client       one judge: ask, answer, check what comes back
panel        several judges at once: all that a node calls

The judge's side, from the outside in:
command      `shoal judge`: its flags, and reports as tables
server       uvicorn until it is told to stop;  `shoal.serving`: how many connections there may be, and how slow
addresses    what an address may do, before anything is read
web          HTTP: routes, bodies, refusals
service      the course of a question, from an Ask to its score
rules        who may ask and answer what, and when: no I/O, a clock from outside;  sessions: the nodes in memory
questions    which question comes next: a keyed hash of the judge's secret, the node and a number
scoring      answers are scored off the event loop, suspicious ones apart;  lanes: addresses take turns by time
records      what is kept, append-only, in SQLite;  reports: leaderboard, curves, comparisons, exports
"""

from shoal.judge.figures import Estimate, Evaluation, evaluate, wilson

__all__ = ["Estimate", "Evaluation", "evaluate", "wilson"]
