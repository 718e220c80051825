"""Strangers' candidates: what an examiner says of each, and what it costs the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from limits import within
from local_examiner import LocalExaminer

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.rollout import Question, QuestionId
from shoal.sandbox.examiner import Candidate, Examiner
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks

CONFIG = TasksConfig(
    sources=[TaskSpec(name=f"test_verifier_tasks:{name}") for name in ("Echo", "Slow", "Thorough")],
)
KEY = ("reef", "c0ffee", 7)


def candidate(*texts: str, task: str = "echo", first: int = 0) -> Candidate:
    """What a stranger sends who was drawn a question of `task`, with these texts; `{right}` is the right answer."""
    questions = Tasks(CONFIG).draw(64, *KEY)
    slot, question = next((s, q) for s, q in enumerate(questions) if q.id.task == task and s >= first)
    right = str(question.id.index)
    return Candidate(question.id, question.hash, KEY, slot, tuple(text.format(right=right) for text in texts))


@pytest.fixture(scope="module")
def examiner() -> Iterator[Examiner]:
    with Examiner(CONFIG) as examiner:
        yield examiner


@pytest.fixture(scope="module", params=["process", "local"])
def either(request: pytest.FixtureRequest, examiner: Examiner) -> Iterator[Examiner | LocalExaminer]:
    if request.param == "process":
        yield examiner
    else:
        with Verifier(CONFIG) as verifier:
            yield LocalExaminer(Tasks(CONFIG), verifier)


def test_texts_are_scored_in_order(either: Examiner | LocalExaminer) -> None:
    asked = candidate("{right}", "wrong", "so {right}", "{right}", "")
    verdict = either.examine(asked, 1.0)
    assert verdict.reason == ""
    assert verdict.rewards == (1.0, 0.0, 1.0, 1.0, 0.0)
    assert verdict.question == Tasks(CONFIG).question(asked.question)
    assert 0.0 < verdict.seconds < 1.0


def altered(**changes: object) -> Candidate:
    return msgspec.structs.replace(candidate("{right}"), **changes)


def held_out() -> Candidate:
    """The first question of a slot's series that is not for training, as if it had been drawn."""
    tasks = Tasks(CONFIG)
    for slot, question in enumerate(tasks.draw(64, *KEY)):
        if question.id.index > 0:  # the one before is held out
            kept: Question = tasks.question(msgspec.structs.replace(question.id, index=0))
            return Candidate(kept.id, kept.hash, KEY, slot, ("0",))
    raise AssertionError


REFUSALS = {
    "task": lambda: altered(question=QuestionId("chain_sum", "0", "0", 1, 0)),
    "seed": lambda: altered(key=("reef", "c0ffee", 8)),
    "question": lambda: altered(question_hash="another"),
    "held out": held_out,
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_candidates_that_say_what_is_not_so(reason: str, either: Examiner | LocalExaminer) -> None:
    verdict = either.examine(REFUSALS[reason](), 10.0)
    assert (verdict.reason, verdict.rewards) == (reason, ())


MISDEEDS = {"loop": "slow", "exit 0": "crash", "sys.exit": "crash", "raise it": "", "recurse": "", "allocate": ""}


@pytest.mark.slow
@pytest.mark.parametrize(("text", "reason"), MISDEEDS.items())
def test_a_misdeed_costs_its_own_message_only(text: str, reason: str, examiner: Examiner) -> None:
    verdict = examiner.examine(candidate("{right}", text, "wrong"), 0.5)
    assert verdict.reason == reason
    assert verdict.rewards == (() if reason else (1.0, 0.0, 0.0))
    assert verdict.seconds < 2.0
    assert examiner.examine(candidate("{right}", "wrong"), 0.5).rewards == (1.0, 0.0)


@pytest.mark.slow
def test_the_budget_is_of_the_whole_message(examiner: Examiner) -> None:
    texts = [f"work 0.1 {n}" for n in range(8)]
    assert examiner.examine(candidate(*texts), 0.4).reason == "slow"
    assert examiner.examine(candidate(*texts), 4.0).reason == ""


@pytest.mark.slow
def test_nobody_is_blamed_for_a_scorer_that_is_slow_whatever_the_answer(examiner: Examiner) -> None:
    for _ in range(2):
        assert examiner.examine(candidate("{right}", "wrong", task="thorough"), 0.2).reason == "slow task"
        assert examiner.examine(candidate("loop"), 0.2).reason == "slow"
    assert examiner.examine(candidate("{right}", task="thorough"), 5.0).rewards == (1.0,)


def test_nobody_is_blamed_for_a_question_that_takes_long_to_make(examiner: Examiner) -> None:
    slow = candidate("{right}", task="slow")
    assert examiner.examine(slow, 0.1).reason == "slow question"
    patient = examiner.examine(slow, 10.0)
    assert (patient.reason, patient.rewards) == ("", (1.0,))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process starts from nothing")
def test_fresh_processes_are_forks(examiner: Examiner) -> None:
    """No import has started a thread, as that of pyarrow does."""
    examiner.start()
    assert examiner._worker._source is not None
    assert examiner._worker._source.forks


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process starts from nothing")
def test_a_fresh_process_is_there_at_once(examiner: Examiner) -> None:
    examiner.examine(candidate("{right}"), 1.0)
    pids = set()
    source = examiner._worker._source
    for n in range(20):
        assert examiner.examine(candidate(f"exit {n}"), 1.0).reason == "crash"
        assert examiner.examine(candidate("{right}"), 1.0).rewards == (1.0,)
        pids.add(examiner._worker._pid)
    assert len(pids) == 20
    assert examiner._worker._source is source  # which forks: nothing is imported again


@pytest.mark.slow
def test_a_task_with_threads_of_its_own_is_served_without_forks() -> None:
    config = TasksConfig(sources=[TaskSpec(name="test_verifier_tasks:Threaded")])
    question = Tasks(config).draw(1, *KEY)[0]
    with Examiner(config) as examiner:
        for text, reason in ((str(question.id.index), ""), ("loop", "slow"), ("exit 1", "crash"), ("0", "")):
            asked = Candidate(question.id, question.hash, KEY, 0, (text,))
            assert examiner.examine(asked, 0.5).reason == reason


def test_an_examiner_that_cannot_start_is_the_user_s_to_mend() -> None:
    config = TasksConfig(sources=[TaskSpec(name="no_such_module:Task")])
    with Examiner(config) as examiner, pytest.raises(UserError, match="no_such_module"):
        examiner.examine(candidate("0"), 1.0)


def processes(examiner: Examiner) -> tuple[subprocess.Popen[bytes], int]:
    """What forks, and the one that works."""
    source, pid = examiner._worker._source, examiner._worker._pid
    assert source is not None
    assert pid is not None
    return source.process, pid


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each starts from nothing")
def test_examiners_and_verifiers_of_the_same_tasks_share_what_they_are_forked_from(examiner: Examiner) -> None:
    question = candidate().question
    with Verifier(CONFIG) as verifier, Examiner(CONFIG) as other:
        other.start()
        examiner.start()
        assert processes(examiner)[0] is processes(other)[0]
        assert processes(examiner)[1] != processes(other)[1]
        assert other.examine(candidate("exit 1"), 1.0).reason == "crash"
        assert verifier.score([(question, [str(question.index)])]) == [[1.0]]
    assert examiner.examine(candidate("{right}"), 1.0).rewards == (1.0,)


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for counts too."""
    return Path(f"/proc/{pid}").exists()


def gone(pid: int) -> bool:
    for _ in range(100):
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("text", ["{right}", "loop", "exit 1"])
def test_nothing_is_left_running(text: str) -> None:
    examiner = Examiner(within(3.0, CONFIG))  # it shares no process with another's
    examiner.examine(candidate(text), 0.2)
    examiner.start()
    above, below = processes(examiner)
    assert alive(above.pid)
    assert alive(below)
    examiner.close()
    assert gone(above.pid)
    assert gone(below)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_what_works_dies_with_what_it_was_forked_from(tmp_path: Path) -> None:
    examiner = Examiner(within(4.0, CONFIG))
    examiner.start()
    above, below = processes(examiner)
    os.kill(above.pid, signal.SIGKILL)
    above.wait()
    assert gone(below)
    assert examiner.examine(candidate("{right}"), 1.0).reason in ("crash", "slow question")
    assert examiner.examine(candidate("{right}"), 1.0).rewards == (1.0,)
    examiner.close()


CRASHING = """
import os, signal, sys
from test_examiner import CONFIG, Examiner, candidate, processes
examiner = Examiner(CONFIG)
examiner.start()
source, pid = processes(examiner)
print(source.pid, pid, flush=True)
examiner.examine(candidate("loop"), 60.0)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_outlives_a_program_that_is_killed_while_it_scores() -> None:
    command = (sys.executable, "-c", CRASHING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as program:
        assert program.stdout is not None
        above, below = map(int, program.stdout.readline().split())
        assert alive(above)
        assert alive(below)
        program.kill()
        program.wait()
    assert gone(above)
    assert gone(below)
