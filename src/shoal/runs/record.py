"""Writes a round's results to the run's folder and reports them to the watcher."""

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.node import RoundResult
from shoal.runs.build import Nodes
from shoal.runs.diagnosis import Diagnosis
from shoal.runs.folder import RunFolder, write_warnings
from shoal.runs.metrics import learned_rows, live_in_pool, rollout_rows
from shoal.runs.tables import LEARNED, ROLLOUTS, TRANSCRIPTS
from shoal.runs.trackers import Tracker, close
from shoal.runs.watcher import Watcher
from shoal.untrusted import printable

SKIPPED = "learner/skipped_steps"
READINGS, QUOTED = 3, 60
"""Completions of the first round that are shown with what was read of them, and characters of each."""


class Record:
    """The run's folder, its watcher and its trackers."""

    def __init__(self, nodes: Nodes, folder: RunFolder | None, watch: Watcher, trackers: Mapping[str, Tracker]) -> None:
        self.nodes = nodes
        self.folder = folder
        self.watch = watch
        self.trackers = trackers
        self.diagnosis = Diagnosis(nodes.config, nodes.tasks, nodes.rewards)
        self.doubts: Sequence[str] = ()
        """Warnings about the data, from before the run."""
        self._warned: set[str] = set()
        self._written: list[str] | None = None
        self._skipped = ""

    def write(self, rows: Sequence[Mapping[str, Any]], results: Sequence[RoundResult]) -> None:
        """Records a round: `rows`, the metrics of each node, and `results`, one for each node (none in round 0)."""
        round, member = self.nodes.round, self.nodes.member
        if skipped := [f"{row['node']} {row[SKIPPED]:g}" for row in rows if row.get(SKIPPED)]:
            self._skipped = f"steps were skipped, since a loss or a gradient was not finite: {', '.join(skipped)}"
        if self.folder is not None:
            self.folder.log(rows)
            tasks = self.nodes.tasks
            rollouts = [rollout_rows(result, tasks.answer, tasks.reading) for result in results]
            self.folder.save(ROLLOUTS, round, [row for rows in rollouts for row in rows])
            if firsts := [rows[0] for rows in rollouts if rows]:
                self.watch.example(firsts[round % len(firsts)])  # the nodes by turns, whatever its reward is
            for line in readings([row for rows in rollouts for row in rows]) if round == 1 else ():
                self.watch.say(line)
            learned = [row for pair in zip(self.nodes, results, strict=False) for row in learned_rows(*pair)]
            self.folder.save(LEARNED, round, learned)
            if member and member.place and member.reporter:
                [node] = self.nodes
                limits = node.shortener.limits(node.round) if node.shortener else {}
                member.place.tell(rows[0], learned, limits)
                if results:
                    member.place.need(live_in_pool(node), node.J)
                member.reporter.update(rows[0], learned, limits)
        self.report(rows, results)
        self.watch.update(rows, round)

    def report(
        self, rows: Sequence[Mapping[str, Any]], results: Sequence[RoundResult] = (), late: bool = False
    ) -> None:
        """Hands a round to the trackers, and says where they show it. `late`: its evaluation, which comes later."""
        named = [(node.name, result) for node, result in zip(self.nodes, results, strict=False)]
        for tracker in self.trackers.values():
            tracker.report(self.nodes.round, rows, named, late)
        self._say_news()

    def _say_news(self) -> None:
        for name, tracker in self.trackers.items():
            if news := tracker.news():
                self.watch.say(f"{name}: {news}")

    def close_trackers(self) -> None:
        """Waits until the trackers have what is left, and says what is wrong with them."""
        if self.trackers:
            self.watch.status(f"waiting for {', '.join(self.trackers)}")
            close(self.trackers.values())
            self.watch.status("")
            self._say_news()
            self.warn()

    def keep_answers(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Takes transcripts of this round's evaluation and writes them, so that they are seen while the run goes on."""
        if self.folder is not None:
            self.folder.save(TRANSCRIPTS, self.nodes.round, rows)
            self.folder.flush()

    @property
    def warnings(self) -> dict[str, str]:
        """What is wrong now, by its cause."""
        found = {
            "scoring": self.nodes.scoring.trouble or self.nodes.verifier.trouble,
            "questions": self.nodes.tasks.trouble,
            "steps": self._skipped,
            **{name: tracker.trouble for name, tracker in self.trackers.items()},
            "flat": "" if self.diagnosis.cause else self.diagnosis.flat,
            self.diagnosis.cause: self.diagnosis.warning,
            **{doubt: doubt for doubt in self.doubts},
        }
        return {cause: text for cause, text in found.items() if text}

    def warn(self) -> None:
        """Shows each warning once, at once, and keeps those of now in the folder."""
        now = self.warnings
        for cause, text in now.items():
            if cause not in self._warned:
                self.watch.warn(text)
        self._warned |= now.keys()
        if self.folder is not None and self._written != list(now.values()):
            self._written = list(now.values())
            write_warnings(self.folder.path, self._written)

    def note(self, results: Sequence[RoundResult]) -> None:
        """Reports warnings, and what is worth a remark."""
        member = self.nodes.member
        pairs = list(zip(self.nodes, results, strict=True))
        self.diagnosis.look([result for node, result in pairs if node.learner])
        self.warn()
        judges = member.judges if member else None
        notes = [judges.trouble] if judges and judges.trouble else []
        notes += [f"{n.name} gives fewer rollouts: {trouble}" for n in self.nodes if (trouble := n.policy.trouble)]
        short = [node.J for node, result in pairs if node.learner and len(result.from_peers) < node.J]
        if short and (len(pairs) > 1 or member):
            notes.append(f"fewer than J = {max(short)} rollouts of others this round: no more live ones had come")
        self.watch.note("; ".join(notes))


def readings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was read as the answer in a few completions, first one of each reward: `"... so 14." -> 14 as number -> 1`.
    Empty where tasks read all of a completion."""
    known = list({(row["completion"], row["reward"]): row for row in rows if row["read"] is not None}.values())
    firsts = list({row["reward"]: row for row in known}.values())
    lines: list[str] = []
    for row in [*firsts, *(row for row in known if row not in firsts)][:READINGS]:
        said = " ".join(printable(row["completion"][-4 * QUOTED :]).split())
        tail = said if len(said) <= QUOTED else f"… {said[-QUOTED:]}"
        lines.append(f'{"" if lines else "read":15}"{tail}" -> {row["read"]} -> {row["reward"]:g}')
    return lines
