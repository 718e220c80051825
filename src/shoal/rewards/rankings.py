"""People's rankings of several answers to one question, and the rewards they give.

    rankings = Rankings(Path("rankings.sqlite"))
    rankings.add("ada", question, [["4"], ["four", "4."], ["5"]])     # best first; equals together
    rankings.score([(question, ["4", "5", "22"])])                    # [[1.0, 0.0, None]]

Answers that nobody ranked have no reward. Another process may write the file, such as the page where people rank.
"""

import contextlib
import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec

from shoal.errors import UserError
from shoal.parallel.ranks import ALONE, Ranks
from shoal.protocols import Swarm, TaskSource
from shoal.rewards.reward import Items, Values
from shoal.rollout import Completion, Question, QuestionId, Rollout, Scored, hash_of, text_of
from shoal.tasks.draw import InvalidRollout, validate
from shoal.untrusted import encodable

Ranking = Sequence[Sequence[str]]
"""Answers, best first; equal ones together."""
MAKER = "people"
"""The maker that such rollouts name; their answers may come from several."""
MOST = 64
"""Ranked questions that are taken in a round; the rest wait for the next."""
FILE = "ranked.json"
MOST_ANSWERS = 64
MOST_CHARACTERS = 100_000

_TABLE = """
CREATE TABLE IF NOT EXISTS ranking (
    number INTEGER PRIMARY KEY AUTOINCREMENT, question TEXT NOT NULL, who TEXT NOT NULL, answers TEXT NOT NULL,
    identity BLOB NOT NULL, tiers BLOB NOT NULL, time REAL NOT NULL, UNIQUE (question, who, answers))
"""


class Ranked(NamedTuple):
    """A question that people ranked answers to."""

    number: int
    """Of its last ranking. Later ones have higher numbers, also where they replace another."""
    question: QuestionId
    answers: list[str]
    """All that anybody ranked."""


class Rankings:
    """Rankings in a file, and the rewards by them. Processes may share the file, and threads the object."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        """Makes the file if there is none. `read_only`: a path may be from somebody else's configuration, so nothing
        is written. Raises `UserError` if it is another kind of file or cannot be used."""
        self.path = path
        self._place = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        self.trouble = ""
        try:
            with self._open() as file:
                file.execute("SELECT 1 FROM ranking LIMIT 1" if read_only else _TABLE)
        except (sqlite3.Error, OSError) as error:
            advice = "; `shoal human` makes such a file" if read_only else ""
            raise UserError(f"{path} cannot hold rankings: {error}{advice}") from error

    def add(self, who: str, question: Question, ranking: Ranking) -> None:
        """Keeps one person's ranking of at least two answers. It replaces an earlier one of the same answers.

        Raises `ValueError` for a ranking with too few, too many or too long answers, or with one of them twice.
        """
        tiers = [[encodable(text) for text in tier] for tier in ranking if tier]
        texts = sorted(text for tier in tiers for text in tier)
        if not 2 <= len(texts) <= MOST_ANSWERS:
            raise ValueError(f"a ranking has 2 to {MOST_ANSWERS} answers, not {len(texts)}")
        if len(set(texts)) < len(texts):
            raise ValueError("an answer is ranked twice")
        if sum(map(len, texts)) + len(who) > MOST_CHARACTERS:
            raise ValueError(f"a ranking has at most {MOST_CHARACTERS} characters")
        row = (
            hash_of(question.id),
            encodable(who),
            hash_of(texts),
            msgspec.msgpack.encode(question.id),
            msgspec.msgpack.encode(tiers),
            time.time(),
        )
        with self._open() as file:
            file.execute("INSERT OR REPLACE INTO ranking VALUES (NULL, ?, ?, ?, ?, ?, ?)", row)

    def score(self, items: Items) -> Values:
        """Rewards of answers by the rankings of their question; None for what nobody ranked."""
        values: Values = []
        with self._open() as file:
            for question, texts in items:
                found = mean_rank(_rankings(file, question.id))
                values.append([found.get(encodable(text_of(text))) for text in texts])
        return values

    def ranked(self, after: int = 0, most: int = 1 << 31) -> list[Ranked]:
        """The first `most` questions whose last ranking has a number above `after`, in the order of these numbers."""
        query = """SELECT max(number), identity FROM ranking GROUP BY question HAVING max(number) > ?
            ORDER BY max(number) LIMIT ?"""
        found = []
        with self._open() as file:
            for number, data in file.execute(query, (after, most)).fetchall():
                question = _identity.decode(data)
                texts = (text for ranking in _rankings(file, question) for tier in ranking for text in tier)
                found.append(Ranked(number, question, list(dict.fromkeys(texts))))
        return found

    def close(self) -> None:
        """Nothing stays open."""

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The file, open for one transaction: a connection belongs to the thread that made it."""
        with contextlib.closing(sqlite3.connect(self._place, uri=True, timeout=10.0)) as file, file:
            yield file


def mean_rank(rankings: Sequence[Ranking]) -> dict[str, float]:
    """The mean, over the rankings that have an answer, of its place in them: 1 for the first, 0 for the last, equals
    share the mean of theirs."""
    places: dict[str, list[float]] = defaultdict(list)
    for ranking in rankings:
        n, better = sum(map(len, ranking)), 0
        for tier in ranking:
            place = better + (len(tier) - 1) / 2
            for text in tier:
                places[text].append(1 - place / (n - 1))
            better += len(tier)
    return {text: fmean(values) for text, values in places.items()}


def _rankings(file: sqlite3.Connection, identity: QuestionId) -> list[list[list[str]]]:
    query = "SELECT tiers FROM ranking WHERE question = ? ORDER BY number"
    return [_ranking.decode(data) for (data,) in file.execute(query, (hash_of(identity),)).fetchall()]


_identity = msgspec.msgpack.Decoder(QuestionId)
_ranking = msgspec.msgpack.Decoder(list[list[str]])


class RankedSwarm:
    """A node's place in a swarm, with people's rankings as one more source of rollouts.

    A node that is rewarded by rankings alone would learn nothing from its fresh answers, since nobody has ranked them
    yet. Once somebody has, the node receives the question with all its ranked answers as if a peer had sent them. They
    are then scored, put into the pool and sampled among J like all rollouts of peers.
    """

    def __init__(self, swarm: Swarm, rankings: Sequence[Rankings], tasks: TaskSource, ranks: Ranks = ALONE) -> None:
        """`rankings`: empty on all ranks but rank zero."""
        self.swarm = swarm
        self.rankings = {str(one.path): one for one in rankings}
        self.tasks = tasks
        self.ranks = ranks
        self.seen: dict[str, int] = {}
        """The number of the last ranking of each file that was looked at."""

    @property
    def seed_key(self) -> tuple[str | int, ...]:
        return self.swarm.seed_key

    @property
    def refused(self) -> int:
        return self.swarm.refused

    def share(self, rollouts: Sequence[Rollout]) -> None:
        self.swarm.share(rollouts)

    def receive(self) -> list[Rollout | Scored]:
        new = {path: one.ranked(self.seen.get(path, 0), MOST) for path, one in self.rankings.items()}
        ranked = self.ranks.broadcast(new)
        self.seen |= {path: found[-1].number for path, found in ranked.items() if found}
        made = (self._rollout(one) for found in ranked.values() for one in found)
        return [*self.swarm.receive(), *(rollout for rollout in made if rollout is not None)]

    def _rollout(self, ranked: Ranked) -> Rollout | None:
        """None if its question is held out or not one of these tasks': people may rank anything."""
        try:
            question = validate(self.tasks, ranked.question, None, len(ranked.answers))
        except InvalidRollout:
            return None
        completions = tuple(map(Completion.of, ranked.answers))
        return Rollout(question.id, question.hash, completions, MAKER, ranked.number)

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(self.seen))
        self.swarm.save(folder)

    def load(self, folder: Path) -> None:
        file = folder / FILE
        if file.exists():  # a checkpoint of a run without rankings has none
            self.seen = json.loads(file.read_text())
        self.swarm.load(folder)
