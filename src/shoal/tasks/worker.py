"""The process in which answers are scored: `python -m shoal.tasks.worker`, started by `Verifier`.

It reads its configuration, says that it is ready, and then answers lists of jobs with one result for each, in order and
as soon as each is known, so that the verifier can tell which one it died of.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from typing import BinaryIO

import msgspec

from shoal.config import TasksConfig
from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal.tasks import guard
from shoal.tasks.draw import Tasks, UnknownQuestion
from shoal.tasks.wire import Job, Ready, Result, receive, send


def main() -> None:
    """Serve until the verifier closes its end."""
    requests, replies = _own_pipes()
    _die_with_parent()
    warnings.simplefilter("ignore")  # the compiler has much to say about the answers of young models
    try:
        tasks = Tasks(TasksConfig.model_validate(msgspec.msgpack.decode(receive(requests))))
    except UserError as error:
        send(replies, Ready(str(error)))
        return
    guard.install()
    send(replies, Ready())
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # from here on only answers could make it speak
    jobs = msgspec.msgpack.Decoder(list[Job])
    while True:
        try:
            batch = jobs.decode(receive(requests))
        except EOFError:
            return
        for job in batch:
            send(replies, score(tasks, job.question, job.text))


def score(tasks: Tasks, question: QuestionId, text: str) -> Result:
    """The raw score of one completion's text. Whatever a scorer raises is a result too."""
    try:
        task, spec = tasks.lookup(question)
        answer = extract(text, spec.answer)
        if answer is None:
            return Result(0.0)
        task.question(question.seed, question.index)  # made before the guard is armed: a generator may do more
        with guard.armed():
            (value,) = task.score(question, [answer])
        return Result(float(value))
    except UnknownQuestion:
        return Result(failure="unknown")
    except guard.Refused:
        return Result(failure="refused")
    except Exception:  # any kind of error in a scorer is that answer's score
        return Result(failure="error")


def extract(text: str, how: str) -> str | None:
    """The answer in a completion: all of it, or what stands in the last <answer> </answer>; None if there is none.

    By searching from the end, in linear time: a regular expression takes quadratic time for a text made for it.
    """
    if how == "whole":
        return text.strip()
    start = text.rfind("<answer>", 0, max(0, text.rfind("</answer>")))
    if start < 0:
        return None
    start += len("<answer>")
    return text[start : text.find("</answer>", start)].strip()


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The pipes to the verifier, out of the reach of a task that reads standard input or prints."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return requests, replies


def _die_with_parent() -> None:
    """End when the parent is gone, even in the midst of an endless scorer."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
