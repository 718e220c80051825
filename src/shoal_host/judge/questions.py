"""Draws a node's next question from the judge's private key, the node's key and the number of its questions so far.

A node can influence none of these, so asking again gives it no other choice. The question is held out: no honest node
trains on it. The private key makes it unpredictable. The task is drawn by the weights of the suite, independently each
time: scores are then independent draws from one mixture, as Wilson's interval requires, and no node knows its next
task.
"""

import hashlib
from random import Random

from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.rollout import Question
from shoal.tasks import Tasks
from shoal.tasks.task import MAX_INDEX

DOMAIN = b"shoal judge questions v1\0"
ATTEMPTS = 16
"""Seeds with `MAX_INDEX` questions each, among which a held-out one is looked for."""


class Questions:
    """Draws questions. For one thread. Raises `UserError` if a task has no held-out questions within reach."""

    def __init__(self, tasks: Tasks, identity: Identity) -> None:
        self.tasks = tasks
        self._secret = identity.sign(DOMAIN)  # always the same 64 bytes, and in no message
        for label, found in tasks.held_out(1, self._number("trial") >> 1).items():
            if not found:
                raise UserError(f"task {label!r} has no held-out question within reach: too few differ")
            if found[0].pictures:
                raise UserError(f"task {label!r} shows pictures, and a judge asks by text alone: leave it out")

    def draw(self, key: bytes, number: int) -> tuple[str, Question]:
        """The task's label and question `number` of the node with `key`: always the same ones."""
        weights = self.tasks.weights
        [place] = Random(self._number("task", key.hex(), number)).choices(range(len(weights)), weights)
        task = self.tasks.tasks[place]
        for attempt in range(ATTEMPTS):
            seed = self._number("question", key.hex(), number, task.name, task.config, attempt) >> 1
            for index in range(MAX_INDEX):
                question = self.tasks.made(self.tasks.labels[place], seed, index)
                if self.tasks.is_held_out(question):
                    return self.tasks.labels[place], question
        raise UserError(f"task {task.name!r} has no held-out question in {ATTEMPTS * MAX_INDEX} tries")

    def _number(self, *parts: str | int) -> int:
        """64 bits that only the holder of the secret can compute."""
        data = "\0".join(map(str, parts)).encode()
        digest = hashlib.blake2b(data, digest_size=8, key=self._secret, person=b"shoal judge draw").digest()
        return int.from_bytes(digest, "big")
