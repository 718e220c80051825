"""Writes docs/reference/slack.md: the share of right answers of each embedded task that still get 1 with foreign text.

python scripts/slack.py
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from shoal.config.tasks import TasksConfig
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.tasks.reasoning import ReasoningTask
from shoal_extras.validation import validate
from shoal_extras.validation.forms import Case, with_foreign

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "slack.md"
ASKED = 50
WAYS = [("pond", "task"), ("tagged", "task"), ("reef", "task"), ("pictures", "task"), ("paper", "task")]
WAYS += [("paper", "whole"), *((suite, "strict") for suite in ("pond", "tagged", "reef", "pictures", "paper"))]
HEAD = """# Slack by task

The share of right answers that still get 1 with foreign text beside them, of {asked} questions of each task. A hostile
node can teach such text ([attacks](../concepts/attacks.md)). `shoal validate` measures any task; `python
scripts/slack.py` wrote this page.

- Thoughts (`<think>`) are never scored, except by `--answer strict`. Where a task asks for tags nothing else is scored.
- `--answer strict` leaves none of this. It also refuses steps before an answer, and programs cannot be asked so. Words
  of the question remain, digits, signs and single letters: up to 16 characters more than the right answer has.
- Games read whole turns and are not measured. propositional_logic has many right answers: an example is taken.

"""


def main() -> None:
    rows: list[list[str]] = []
    places: list[str] = []
    for suite, answer in WAYS:
        config = TasksConfig(suite=suite, answer=answer)
        found = {label: one.slack for label, one in validate(config, ASKED, 0).items()}
        found |= {label: by_example(config, label) for label, slack in found.items() if not slack}
        places = list(next(iter(found.values())))
        alike: dict[tuple[str, ...], list[str]] = {}
        for label, slack in found.items():
            alike.setdefault(tuple(f"{slack[place]:.2g}" for place in places), []).append(label)
        for shares, labels in alike.items():
            names = f"all {len(labels)}" if len(alike) == 1 and answer == "strict" else ", ".join(labels)
            rows.append([suite if answer == "task" else f"{suite}, `--answer {answer}`", names, *shares])
    table = [["suite", "tasks", *places], ["---"] * (len(places) + 2), *rows]
    lines = (f"| {' | '.join(row)} |" for row in table)
    PAGE.write_text(HEAD.format(asked=ASKED) + "\n".join(lines) + "\n", encoding="utf-8")


def by_example(config: TasksConfig, label: str) -> dict[str, float]:
    """The slack of a task of reasoning-gym that has many right answers, by the example of one."""
    tasks = Tasks(config)
    number = tasks.labels.index(label)
    task, spec = tasks.tasks[number], tasks.specs[number]
    assert isinstance(task, ReasoningTask)
    ids = [tasks.made(label, seed, 0).id for seed in range(ASKED)]
    rights = [task.entry(id.seed, id.index)["metadata"]["example_answer"] for id in ids]
    texts = [with_foreign(Case("", [right], "", form=spec.answer)) for right in rights]
    with Verifier(config) as verifier:
        scores = verifier.score([(id, list(said.values())) for id, said in zip(ids, texts, strict=True)])
    return {
        place: fmean(score >= 1 for score in column)
        for place, column in zip(texts[0], zip(*scores, strict=True), strict=True)
    }


if __name__ == "__main__":
    main()
