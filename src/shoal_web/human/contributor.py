"""A person, a program or a model behind an API that answers in a swarm and does not learn. No torch, no weights.

    with closing(Contributor(config, folder)) as one:
        [entry] = one.ask()                       # a question, bound to this key and a round of its own
        entry = one.answer(entry.round, ["6"])
        entry.rewards                             # by this machine's own verifier; receivers score it themselves
        one.journal.answered()[0].learners        # who says that it learned from the answer

To others it is a node like any other. How often peers' rollouts are right says which tasks are hard.
"""

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final

from shoal.admission.peers import Differing
from shoal.config.answer_form import extract, in_form
from shoal.config.display_name import full_name
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.identity.lock import only_node
from shoal.membership.connection import SwarmConnection
from shoal.membership.settings import check_network
from shoal.rollout import Completion, Question, Rollout, Scored
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.tasks.draw import slot_seed
from shoal.tasks.task import right_answer
from shoal.untrusted import encodable
from shoal.wire.notices import Notice
from shoal.wire.rollouts import Kind
from shoal_web.human.journal import Entry, Journal, Learner

logger = logging.getLogger(__name__)
AT_ONCE: Final = 64  # questions that may be asked for together
TRIES: Final = 8  # rounds that are skipped for a question that was not asked before
EVERY: Final = 0.5  # seconds between two looks at what came in
HEARD: Final = 64  # others' rollouts of a task that count as their success
NEEDED: Final = "needed"
"""In place of a task: rather one that nodes seldom solve, since there a right answer differs most from theirs."""
CHOICE: Final = 4
"""Questions of a task that are drawn for one that is recommended: the longest of them, so rarely a trivial one."""


class Contributor:
    """Answers in a swarm and does not learn. Threads may share it. Close it.

    Raises `UserError` for settings, keys or files that cannot be used.
    """

    def __init__(self, config: Config, folder: Path, kind: Kind = "human", model: str | None = None) -> None:
        """`folder` keeps its journal and its identity, which no node shares, since each counts rounds of its own.
        `model`: what a program calls itself, for others to know."""
        check_network(config)
        self.config = config = config.resolved()
        self.kind: Kind = kind
        self.swarm = config.network.name
        self.tasks = Tasks(config.tasks)
        self.tasks.refuse_environments("the page for people" if kind == "human" else "a contributor")
        self.specs = dict(zip(self.tasks.labels, self.tasks.specs, strict=True))
        self._made = dict(zip(self.tasks.labels, self.tasks.tasks, strict=True))
        self.identity = Identity.load_or_create(folder / "identity")
        self._random = Random()
        self._lock = threading.RLock()
        self._heard: dict[str, deque[float]] = {label: deque(maxlen=HEARD) for label in self._made}
        with ExitStack() as stack:
            stack.enter_context(only_node(folder / "identity", self.swarm))
            self.journal = stack.enter_context(closing(Journal(folder / f"{self.swarm}.sqlite")))
            self._verifier = stack.enter_context(closing(Verifier(config.tasks)))
            made = SwarmConnection(config, self.identity, kind=kind, model=model, on_notice=self._hear)
            self.member = stack.enter_context(closing(made))
            self._stack = stack.pop_all()
        self.member.admission.differing = Differing(self.tasks.identities)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def ask(self, want: str = NEEDED, n: int = 1) -> list[Entry]:
        """`n` questions to answer: first those that wait already and are what is wanted (`NEEDED` or a task's label),
        then new ones. Raises `LookupError` for an unknown task."""
        if not 1 <= n <= AT_ONCE:
            raise ValueError(f"ask for 1 to {AT_ONCE} questions, not {n}")
        if want not in (NEEDED, *self._made):
            raise LookupError(f"no task '{want}'; there are {', '.join(self._made)}")
        with self._lock:
            found = [one for one in self._waiting() if want in (NEEDED, one.task)][:n]
            while len(found) < n:
                found.append(self._draw(self._needed(), CHOICE) if want == NEEDED else self._draw(want))
            return found

    def answer(self, round: int, texts: Sequence[str]) -> Entry:
        """Scores answers to a question that waits, keeps them in the journal and shares them.

        Raises `LookupError` where none waits, `ValueError` for what nobody would admit."""
        entry = next((one for one in self._waiting() if one.round == round), None)
        if entry is None:
            raise LookupError(f"no question waits for an answer in round {round}")
        answers = self._checked(entry, texts)
        [rewards] = self._verifier.score([(entry.question.id, answers)])
        entry = self.journal.settle(round, answers, rewards)
        completions = tuple(map(Completion.of, answers))
        question = entry.question
        rollout = Rollout(question.id, question.hash, completions, self.identity.name, round, 0)
        self.member.share([rollout])
        return entry

    def right_answer(self, entry: Entry) -> str | None:
        """A right answer to a question that is answered, where its task knows one. Never before: nodes would learn from
        a copy."""
        task = self._made.get(entry.task)
        return right_answer(task, entry.question.id) if task and entry.state == "answered" else None

    def success(self) -> dict[str, float | None]:
        """The mean reward of peers' latest rollouts by task; None where none came in."""
        with self._lock:
            return {label: fmean(heard) if heard else None for label, heard in self._heard.items()}

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._stack.close()

    def _needed(self) -> str:
        """A task that nodes seldom solve, rather than one that they often do; none that they always solve."""
        need = [1 - (0.5 if share is None else share) for share in self.success().values()]
        weights = [weight * needed for weight, needed in zip(self.tasks.weights, need, strict=True)]
        return self._random.choices(self.tasks.labels, weights if sum(weights) else self.tasks.weights)[0]

    def _waiting(self) -> list[Entry]:
        return [entry for entry in self.journal.open() if entry.task in self._made]

    def _draw(self, label: str, choice: int = 1) -> Entry:
        """A new question of the task, which every node can derive from this key, the round and slot 0: the longest of
        `choice` that were not asked before."""
        first = self.journal.last() + 1
        drawn = ((round, self._question(label, round)) for round in range(first, first + TRIES))
        # Nodes take the same text for the same question once, from whoever: another question says more.
        new = list(islice((one for one in drawn if not self.journal.asked(one[1].hash)), choice))
        round, chosen = max(new or [(first, self._question(label, first))], key=lambda one: len(one[1].text))
        return self.journal.offer(Entry(round, label, chosen))

    def _question(self, label: str, round: int) -> Question:
        """The first training question of the seed that key, round and slot give (`Tasks.is_drawn`)."""
        return self.tasks.first(label, slot_seed((self.swarm, self.identity.id, round), 0, self._made[label].name))

    def _checked(self, entry: Entry, texts: Sequence[str]) -> list[str]:
        """The completions to send, in the form from which the task takes its answer."""
        most = self.config.policy.num_generations
        if not 1 <= len(texts) <= most:
            raise ValueError(f"give from 1 to {most} answers")
        if not all(text.strip() for text in texts):
            raise ValueError("an answer is empty")
        form = self.specs[entry.task].answer
        try:
            answers = [text if extract(text, form) is not None else in_form(text.strip(), form) for text in texts]
        except ValueError:
            raise ValueError(f"an answer is not in the form {form}") from None
        longest = self.member.admission.limits.max_characters
        for text in answers:
            if len(text) > longest:
                raise ValueError(f"an answer has {len(text)} characters, and {longest} are the most that nodes take")
            if encodable(text) != text:
                raise ValueError("an answer is not valid Unicode")
        return answers

    def _collect(self) -> None:
        """Takes in peers' rollouts."""
        with suppress(UserError):  # starts the process that scores, so that the first answer does not wait for it
            self._verifier.score([(self._question(self.tasks.labels[0], 0).id, [""])])
        while not self._closed.wait(EVERY):
            try:
                self._take(self.member.receive())
            except Exception:
                logger.exception("taking in what came")

    def _take(self, received: Sequence[Scored]) -> None:
        with self._lock:
            for scored in received:
                label = self.tasks.label_of(scored.question.id)
                if label is not None:
                    self._heard[label].append(scored.mean_reward)

    def _hear(self, by: Notice) -> None:
        """Keeps that a node learned from own answers. Nothing makes it say so: it is thanks, not proof."""
        rounds = [one.round for one in by.learned if (one.maker, one.slot) == (self.identity.name, 0)]
        if not rounds:
            return
        try:
            name = full_name(by.name, by.display_name)
            self.journal.learned(rounds, Learner(by.id, name, by.round, time.time()))
        except sqlite3.Error:
            logger.exception("keeping who learned")
