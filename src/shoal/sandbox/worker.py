"""The process in which answers are scored: started by `Verifier` and `Examiner`.

It answers a list of jobs with one result each, in order and as soon as each is known, so that the verifier can tell
which job killed it; and a stranger's candidate with one verdict. It announces when a question is made and scoring
begins, so that each gets its own time.
"""

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from shoal.config.answer_form import STRICT, extract, says_more
from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import in_brief
from shoal.rollout import Answer, Question, QuestionId
from shoal.sandbox import guard
from shoal.sandbox.pipes import Candidate, Handler, Job, Made, Request, Result, Verdict, serve
from shoal.sandbox.process import processor_seconds
from shoal.sandbox.replay import refusal
from shoal.sandbox.verifier import filled, is_too_long, reward
from shoal.tasks.data.task import DataTask
from shoal.tasks.draw import InvalidRollout, Tasks, UnknownQuestion, validate
from shoal.tasks.environments.task import EnvironmentTask, play
from shoal.tasks.task import Failed, NoVerdict, Task, right_answer

NO_REWARD = "no reward (None or NaN)"


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
    for question, asked in groupby(jobs, lambda job: job.question):
        try:
            task, spec = tasks.lookup(question)
        except UnknownQuestion:
            yield Made()
            why = "this task makes other questions in each process: fix its seed"
            yield from (Result(failure="unknown", detail=why) for _ in asked)
            continue
        failed = None
        try:  # before the guard is armed: a generator may do more than a scorer
            task.question(question.seed, question.index)
        except Exception as error:  # any kind of error in a generator
            failed = Result(failure="error", detail=in_brief(error))
        # Nobody is to blame for what takes too long where answers are programs, or an environment answers back.
        yield Made(isinstance(task, EnvironmentTask) or getattr(task, "runs_programs", False))
        for job in asked:
            yield failed or answered(task, spec, question, job.answer, job.scored)


def examined(tasks: Tasks, candidate: Candidate) -> Iterator[Made | Result | Verdict]:
    """What `judged` says, with the time that it took."""
    begun = processor_seconds(os.getpid())
    for said in judged(tasks, candidate):
        timed = isinstance(said, Verdict)
        yield msgspec.structs.replace(said, seconds=processor_seconds(os.getpid()) - begun) if timed else said


def judged(tasks: Tasks, candidate: Candidate) -> Iterator[Made | Result | Verdict]:
    """The verdict on a candidate, with `Made` before it if its question is the right one."""
    try:
        drawn = candidate.key, candidate.slot
        question = validate(tasks, candidate.question, candidate.question_hash, len(candidate.texts), drawn)
    except InvalidRollout as invalid:
        verdict = Verdict(invalid.reason)
    else:
        # What has one turn is one text, however many parts it came in.
        whole = question.turns == 1
        distinct = [text for text in dict.fromkeys(candidate.texts) if not is_too_long(text)]
        replies = scored(tasks, [Job(candidate.question, "".join(text) if whole else text) for text in distinct])
        if distinct:
            yield next(replies)
        found: dict[Answer, Any] = dict(zip(distinct, replies, strict=True))
        results = [found.get(text, Result()) for text in candidate.texts]
        known = [reward(result, tasks.config.partial_credit) for result in results]
        reason = refused(question, candidate, results)
        if reason or all(value is None for value in known):
            verdict = Verdict(reason or "no verdict")
        else:
            observations = tuple(result.observations for result in results) if question.turns > 1 else ()
            verdict = Verdict("", question, tuple(filled(known)), observations=observations)
    yield verdict


def refused(question: Question, candidate: Candidate, results: Sequence[Result]) -> str:
    """Why the candidate's conversations are refused ("replay" or "environment"); empty if they are not."""
    if question.turns == 1:
        return ""
    cut = candidate.cut or (False,) * len(results)
    reasons = [refusal(question, *each) for each in zip(candidate.texts, cut, results, strict=True)]
    reason = next(filter(None, reasons), "")
    return "environment" if reason not in ("", "replay") else reason


def answered(task: Any, spec: TaskSpec, question: QuestionId, answer: Answer, scored: bool) -> Result:
    """The result of one completion: the raw score of a text, or how a conversation goes."""
    turns = (answer,) if isinstance(answer, str) else answer
    if isinstance(task, EnvironmentTask):
        return conversed(task, question, turns, scored)
    text = extract("".join(turns), spec.answer)
    if text is None or (spec.answer == STRICT and more_than_answers(task, question, text)):
        return Result()
    return guarded(lambda: task.score(question, [text])[0], ":" in spec.name)


def more_than_answers(task: Task, question: QuestionId, text: str) -> bool:
    """Whether a text says more than an answer to the question."""
    rights = task.rights(question) if isinstance(task, DataTask) else [right_answer(task, question) or ""]
    return says_more(text, list(filter(None, rights)), task.question(question.seed, question.index).text)


def conversed(task: EnvironmentTask, question: QuestionId, turns: tuple[str, ...], scored: bool) -> Result:
    """A conversation held again. Whatever an environment raises costs its score alone."""
    try:
        conversation = task.begin(question)
        with guard.armed():
            observations, ended = play(conversation, turns)
            value = conversation.score() if scored else 0.0
        score = finite(value)
        return Result(score, "", NO_REWARD if score is None else "", observations, ended)
    except guard.Refused as refusal:
        return Result(None, "refused", in_brief(refusal))
    except Failed as failed:
        return Result(None, failed.reason, failed.detail)
    except Exception as error:  # any kind of error in an environment
        return Result(None, "environment", in_brief(error))


def guarded(call: Callable[[], float], own_code: bool = False) -> Result:
    """The score that `call` gives, within the guard. `own_code`: an error is told, since somebody has to mend it."""
    try:
        with guard.armed():
            value = call()
        score = finite(value)
        return Result(score, *(("undecided", NO_REWARD) if score is None else ()))
    except guard.Refused as refusal:
        return Result(failure="refused", detail=in_brief(refusal))
    except Failed as failed:
        return Result(None if isinstance(failed, NoVerdict) else 0.0, failed.reason, failed.detail)
    except Exception as error:  # any kind of error in a scorer is that answer's score
        return Result(failure="error", detail=in_brief(error) if own_code else "")


def finite(value: float | None) -> float | None:
    """A score as a number; None for None and for NaN, as in reward functions. Raises `ValueError` for infinity."""
    if value is None or math.isnan(value := float(value)):
        return None
    if math.isinf(value):
        raise ValueError(f"its score is {value}")
    return value


def main() -> None:
    """Serves until the other end is closed."""
    serve(prepare)
