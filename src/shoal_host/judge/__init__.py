"""`shoal judge`: a third party that asks nodes held-out questions (docs/guides/judge.md). Nodes use `shoal.evaluation`.

command         the flags of `shoal judge`
server          uvicorn and the HTTP routes, on `shoal_web.serving`
service         the course of a question, from an Ask to its score
rules           who may ask and answer what, and when, without I/O
questions       draws the next question: a keyed hash of the judge's private key, the node and a number
scoring         scores answers off the event loop; addresses take turns
records         append-only tables in SQLite;  reports: the leaderboard;  source: on the page
"""
