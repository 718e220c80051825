"""`shoal judge`: held-out questions asked by a third party (docs/judge.md). A node's side is `shoal.evaluation`.

From the outside in:
command      `shoal judge`: its flags, and reports as tables
server       uvicorn until it is told to stop;  `shoal.apps.serving`: how many connections there may be, and how slow
addresses    what an address may do, before anything is read
web          HTTP: routes, bodies, refusals
service      the course of a question, from an Ask to its score
rules        who may ask and answer what, and when: no I/O, a clock from outside;  sessions: the nodes in memory
questions    which question comes next: a keyed hash of the judge's secret, the node and a number
scoring      answers are scored off the event loop, suspicious ones apart;  lanes: addresses take turns by time
records      what is kept, append-only, in SQLite;  reports: leaderboard, curves, comparisons, exports
"""
