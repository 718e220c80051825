"""The process in which answers are scored: started by `Verifier` and `Examiner`.

It answers a list of jobs with one result each, in order and as soon as each is known, so that the verifier can tell
which job killed it; and a stranger's candidate with one verdict. It announces when a question is made and scoring
begins, so that each gets its own time.
"""

import os
import warnings
from collections.abc import Callable, Iterator

import msgspec

from shoal.config.answer_form import extract
from shoal.config.tasks import TasksConfig
from shoal.errors import in_brief
from shoal.rollout import Answer, QuestionId
from shoal.sandbox import guard
from shoal.sandbox.examiner import check
from shoal.sandbox.pipes import Candidate, Handler, Job, Made, Request, Result, Verdict, serve
from shoal.sandbox.process import processor_seconds
from shoal.sandbox.replay import refusal
from shoal.sandbox.verifier import filled, is_too_long, reward
from shoal.tasks.draw import Tasks, UnknownQuestion
from shoal.tasks.environments.task import EnvironmentTask, play
from shoal.tasks.task import Failed, NoVerdict, Proposes, RunsPrograms


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
            yield Made(may_take_long(tasks, job.question))
        yield failed or answered(tasks, job.question, job.answer, job.scored)


def examined(tasks: Tasks, candidate: Candidate) -> Iterator[Made | Verdict]:
    """The verdict on a candidate, with `Made` before it if its question is the right one."""
    begun = processor_seconds(os.getpid())
    verdict = check(tasks, candidate)
    if not verdict.reason:
        make(tasks, candidate.question)
        yield Made(may_take_long(tasks, candidate.question))
        # What has one turn is one text, however many parts it came in.
        whole = bool(candidate.key) and verdict.question is not None and verdict.question.turns == 1
        results = {
            text: Result()
            if is_too_long(text)
            else answered(tasks, candidate.question, "".join(text) if whole else text)
            for text in dict.fromkeys(candidate.texts)
        }
        verdict = judged(verdict, candidate, [results[text] for text in candidate.texts], tasks.config.partial_credit)
    yield msgspec.structs.replace(verdict, seconds=processor_seconds(os.getpid()) - begun)


def judged(verdict: Verdict, candidate: Candidate, results: list[Result], partial_credit: float) -> Verdict:
    """`verdict`, whose claim is true, with the rewards of all answers, or with the reason to refuse them."""
    assert verdict.question is not None
    if verdict.question.turns > 1:
        cut = candidate.cut or (False,) * len(results)
        for text, result, is_cut in zip(candidate.texts, results, cut, strict=True):
            if reason := refusal(verdict.question, text, is_cut, result):
                return Verdict("replay" if reason == "replay" else "environment")
    known = [reward(result, bool(partial_credit)) for result in results]
    if all(value is None for value in known):
        return Verdict("no verdict")
    observations = tuple(result.observations for result in results) if verdict.question.turns > 1 else ()
    return msgspec.structs.replace(verdict, rewards=tuple(filled(known)), observations=observations)


def may_take_long(tasks: Tasks, question: QuestionId) -> bool:
    """Whether nobody is to blame for what takes too long: answers are programs, or an environment answers back."""
    try:
        task, _ = tasks.lookup(question)
    except UnknownQuestion:
        return False
    return isinstance(task, EnvironmentTask) or (isinstance(task, RunsPrograms) and task.runs_programs)


def make(tasks: Tasks, question: QuestionId) -> Result | None:
    """Has the task make what it scores answers by, before the guard is armed: a generator may do more than a scorer.
    Returns the result of all answers if it cannot."""
    try:
        tasks.lookup(question)[0].question(question.seed, question.index)
    except UnknownQuestion:
        return Result(failure="unknown", detail="this task makes other questions in each process: fix its seed")
    except Exception as error:  # any kind of error in a generator
        return Result(failure="error", detail=in_brief(error))
    return None


def answered(tasks: Tasks, question: QuestionId, answer: Answer, scored: bool = True) -> Result:
    """The result of one completion: the score of a text, or how a conversation goes."""
    turns = (answer,) if isinstance(answer, str) else answer
    try:
        task, _ = tasks.lookup(question)
    except UnknownQuestion:
        task = None
    if isinstance(task, EnvironmentTask):
        return conversed(task, question, turns, scored)
    if isinstance(task, Proposes) and len(turns) == 2:
        return guarded(lambda: task.solved(question, *turns))
    return score(tasks, question, "".join(turns))


def conversed(task: EnvironmentTask, question: QuestionId, turns: tuple[str, ...], scored: bool) -> Result:
    """A conversation held again. Whatever an environment raises costs its score alone."""
    try:
        conversation = task.begin(question)
        with guard.armed():
            observations, ended = play(conversation, turns)
            value = float(conversation.score()) if scored else 0.0
        return Result(value, observations=observations, ended=ended)
    except guard.Refused as refusal:
        return Result(None, "refused", in_brief(refusal))
    except Failed as failed:
        return Result(None, failed.reason, failed.detail)
    except Exception as error:  # any kind of error in an environment
        return Result(None, "environment", in_brief(error))


def score(tasks: Tasks, question: QuestionId, text: str) -> Result:
    """The raw score of one completion's text. Whatever a scorer raises is a result too."""
    try:
        task, spec = tasks.lookup(question)
    except UnknownQuestion:
        return Result(failure="error")
    answer = extract(text, spec.answer)
    return Result(0.0) if answer is None else guarded(lambda: task.score(question, [answer])[0], ":" in spec.name)


def guarded(call: Callable[[], float], own_code: bool = False) -> Result:
    """The score that `call` gives, within the guard. `own_code`: an error is told, since somebody has to mend it."""
    try:
        with guard.armed():
            value = call()
        return Result(float(value))
    except guard.Refused as refusal:
        return Result(failure="refused", detail=in_brief(refusal))
    except Failed as failed:
        return Result(None if isinstance(failed, NoVerdict) else 0.0, failed.reason, failed.detail)
    except Exception as error:  # any kind of error in a scorer is that answer's score
        return Result(failure="error", detail=in_brief(error) if own_code else "")


def main() -> None:
    """Serves until the other end is closed."""
    serve(prepare)
