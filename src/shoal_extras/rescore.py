"""`shoal rescore RUN`: the rewards of what a run recorded, computed again."""

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from shoal.cli.flags import add_allow_code, add_own_code, config_of, given_settings
from shoal.errors import UserError
from shoal.protocols import Grader
from shoal.rollout import QuestionId
from shoal.tasks import Tasks
from shoal.untrusted import json_safe, printable

HELP = """Computes the rewards of all answers that a run recorded again, and tells which change. The run stays as it is.

  shoal rescore runs/one                          with today's scorer of its tasks
  shoal rescore runs/one --reward my.py:score     with a function of your own"""
KEY: Final = ("round", "node", "task", "seed", "index", "prompt")
"""What the answers of one group have in common."""
MOST, TOGETHER, EXAMPLES, SHOWN = 4096, 16, 10, 4000
"""Answers of a group; groups that are scored at once; changed rewards that are shown; characters of their texts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_own_code(parser)
    add_allow_code(parser)


def command(args: argparse.Namespace) -> int:
    from shoal.policy.device import place
    from shoal.rewards import RewardVerifier, rewards_of
    from shoal.sandbox.verifier import Verifier

    config = config_of(args.run / "config.toml", given_settings(args), args.allow_code)
    tasks = Tasks(config.tasks)
    count, left_out = Counter[str](), Counter[str]()
    examples: list[dict[str, Any]] = []
    groups = _groups(args.run, tasks, left_out)
    with Verifier(config.tasks) as verifier, Console(stderr=True).status("reading the run") as status:
        rewards = rewards_of(config, verifier, place("cpu"))
        with closing(rewards) if rewards else nullcontext():
            scorer: Grader = RewardVerifier(tasks, rewards) if rewards else verifier
            while some := list(islice(groups, TOGETHER)):
                scored = scorer.score([(id, [row["completion"] for row in group]) for id, group in some])
                rows = [row for _, group in some for row in group]
                for row, after in zip(rows, chain.from_iterable(scored), strict=True):
                    before = row["reward"]
                    changed = abs(before - after) > 1e-6
                    count.update(answers=1, higher=changed and before < after, lower=changed and before > after)
                    count.update(before=before >= 1, after=after >= 1)
                    if changed and len(examples) < EXAMPLES:
                        said = {name: row[name][:SHOWN] for name in ("prompt", "completion")}
                        examples.append({"before": before, "after": after, **said})
                status.update(f"round {some[-1][1][0]['round']}: {count['answers']:,} answers scored")
            trouble = scorer.trouble
    left = "".join(f"; left out: {number:,} {reason}" for reason, number in left_out.items())
    answers, higher, lower = (count[name] for name in ("answers", "higher", "lower"))
    if not answers:
        raise UserError(f"{args.run} has no answers that can be scored again{left}")
    before, after = count["before"] / answers, count["after"] / answers
    if args.json:
        told = {"answers": answers, "left_out": left_out, "changed": higher + lower, "higher": higher, "lower": lower}
        told |= {"pass@1_before": before, "pass@1_after": after, "examples": examples, "trouble": trouble}
        print(json.dumps(json_safe(told)))
        return 0
    print(f"{answers:,} answers: {higher + lower:,} rewards change, {higher:,} up and {lower:,} down")
    print(f"pass@1 of these answers (1 or more): {before:.3f} before, {after:.3f} after{left}")
    for each in examples:
        texts = " -> ".join(f'"{printable(each[name], 60)}"' for name in ("prompt", "completion"))
        print(f"  {each['before']:g} -> {each['after']:g}  {texts}")
    if trouble:
        print(printable(trouble, 300))
    return 0


def _groups(run: Path, tasks: Tasks, left_out: Counter[str]) -> Iterator[tuple[QuestionId, list[dict[str, Any]]]]:
    """The answers to each question that the tasks still ask, in the order of the run; the others are counted."""
    from shoal.runs.tables import ROLLOUTS, records

    rows = records(run, ROLLOUTS, [*KEY, "completion", "reward", "conversation"])
    for key, group in groupby(rows, itemgetter(*KEY)):
        id = _question(tasks, *key[2:])
        while some := list(islice(group, MOST)):
            whole = []
            for row in some:
                if row["conversation"] is not None:
                    left_out["in conversations, which an environment would have to continue"] += 1
                elif not id:
                    left_out["to questions that these tasks no longer ask"] += 1
                elif row["completion"] is None or row["reward"] is None or not math.isfinite(row["reward"]):
                    left_out["without an answer or a reward"] += 1
                else:
                    whole.append(row)
            if id and whole:
                yield id, whole


def _question(tasks: Tasks, task: str, seed: int | None, index: int | None, prompt: str) -> QuestionId | None:
    """The question that the tasks of today ask in these words."""
    for name, version, config in tasks.identities:
        if name == task and seed is not None and index is not None:
            id = QuestionId(name, version, config, seed, index)
            try:
                if tasks.question(id).shown == prompt:
                    return id
            except (UserError, ValueError):  # a stranger's, out of range, or one that its task fails to make
                continue
    return None
