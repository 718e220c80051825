"""Evaluation on held-out questions: by oneself (`evaluate`), or by a third party (`shoal judge`, docs/judge.md).

figures     pass@1 and pass@k with intervals: what a node says of itself
messages    what node and judge say to each other, signed both ways
doors       what an address may do, before anything is read
court       who may ask and answer what, and when: no I/O, a clock from outside
examiner    which question comes next: a keyed hash of the judge's secret, the node and a number
marking     scoring off the event loop, suspicious answers apart
records     what is kept, append-only, in SQLite
reports     what follows from the records: leaderboard, curves, comparisons, exports
service     HTTP;  guarded: the connections below it;  command: `shoal judge`
client      a node's side of it;  panel: several judges at once
"""

from shoal.judge.figures import Estimate, Evaluation, evaluate, wilson

__all__ = ["Estimate", "Evaluation", "evaluate", "wilson"]
