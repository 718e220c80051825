"""The process in which answers are scored: `python -m shoal.sandbox.worker`, started by `Verifier` and `Examiner`.

It answers a list of jobs with one result each, in order and as soon as each is known, so that the verifier can tell
which job killed it; and a stranger's candidate with one verdict. It announces when a question is made and scoring
begins, so that each gets its own time.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

import msgspec

from shoal.config.answer_form import extract
from shoal.config.tasks import TasksConfig
from shoal.rollout import QuestionId
from shoal.sandbox import guard
from shoal.sandbox.examiner import check
from shoal.sandbox.messages import Candidate, Job, Made, Request, Result, Verdict
from shoal.sandbox.pipes import Handler, serve
from shoal.sandbox.process import processor_seconds
from shoal.sandbox.trouble import describe
from shoal.sandbox.verifier import MAX_TEXT, filled, reward
from shoal.tasks.draw import Tasks, UnknownQuestion
from shoal.tasks.task import Failed, NoVerdict, RunsPrograms


def prepare(start: bytes) -> Handler:
    """A handler of requests about the tasks that `start` configures."""
    warnings.simplefilter("ignore")  # the compiler has much to say about the answers of young models
    tasks = Tasks(TasksConfig.model_validate(msgspec.msgpack.decode(start)))
    guard.install()
    requests = msgspec.msgpack.Decoder(Request)

    def handle(data: bytes) -> Iterator[Made | Result | Verdict]:
        request = requests.decode(data)
        return examined(tasks, request) if isinstance(request, Candidate) else scored(tasks, request)

    return handle


def scored(tasks: Tasks, jobs: list[Job]) -> Iterator[Made | Result]:
    """A result for each job, with `Made` before the first job of each question."""
    before = None
    for job in jobs:
        if job.question != before:
            failed = make(tasks, job.question)
            before = job.question
            yield Made(runs_programs(tasks, job.question))
        yield failed or score(tasks, job.question, job.text)


def examined(tasks: Tasks, candidate: Candidate) -> Iterator[Made | Verdict]:
    """The verdict on a candidate, with `Made` before it if its question is the right one."""
    begun = processor_seconds(os.getpid())
    verdict = check(tasks, candidate)
    if not verdict.reason:
        make(tasks, candidate.question)
        yield Made(runs_programs(tasks, candidate.question))
        partial = bool(tasks.config.partial_credit)
        rewards = {
            text: reward(score(tasks, candidate.question, text), partial) if len(text) <= MAX_TEXT else 0.0
            for text in dict.fromkeys(candidate.texts)
        }
        known = [rewards[text] for text in candidate.texts]
        if any(value is not None for value in known):
            verdict = msgspec.structs.replace(verdict, rewards=tuple(filled(known)))
        else:
            verdict = Verdict("no verdict")
    yield msgspec.structs.replace(verdict, seconds=processor_seconds(os.getpid()) - begun)


def runs_programs(tasks: Tasks, question: QuestionId) -> bool:
    """Whether answers to the question are programs."""
    try:
        task, _ = tasks.lookup(question)
    except UnknownQuestion:
        return False
    return isinstance(task, RunsPrograms) and task.runs_programs


def make(tasks: Tasks, question: QuestionId) -> Result | None:
    """Has the task make what it scores answers by, before the guard is armed: a generator may do more than a scorer.
    Returns the result of all answers if it cannot."""
    try:
        tasks.lookup(question)[0].question(question.seed, question.index)
    except UnknownQuestion:
        return Result(failure="unknown", detail="the task is another one in this process: its questions vary")
    except Exception as error:  # any kind of error in a generator
        return Result(failure="error", detail=describe(error))
    return None


def score(tasks: Tasks, question: QuestionId, text: str) -> Result:
    """The raw score of one completion's text. Whatever a scorer raises is a result too."""
    own_code = False
    try:
        task, spec = tasks.lookup(question)
        own_code = ":" in spec.name
        answer = extract(text, spec.answer)
        if answer is None:
            return Result(0.0)
        with guard.armed():
            (value,) = task.score(question, [answer])
        return Result(float(value))
    except guard.Refused as refusal:
        return Result(failure="refused", detail=describe(refusal))
    except Failed as failed:
        return Result(None if isinstance(failed, NoVerdict) else 0.0, failed.reason, failed.detail)
    except Exception as error:  # any kind of error in a scorer is that answer's score
        return Result(failure="error", detail=describe(error) if own_code else "")


if __name__ == "__main__":
    serve(prepare)
