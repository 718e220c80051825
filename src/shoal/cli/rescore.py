"""`shoal rescore RUN`: the rewards of what a run recorded, computed again."""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from msgspec.structs import replace

from shoal.cli.flags import add_allow_code, add_own_code, config_of, given_settings
from shoal.errors import UserError
from shoal.untrusted import json_safe, printable

HELP = """Computes the rewards of all answers that a run recorded again, and tells which change. The run stays as it is.

  shoal rescore runs/one                          with today's scorer of its tasks
  shoal rescore runs/one --reward my.py:score     with a function of your own"""
EXAMPLES: Final = 10
"""Changed rewards that are shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_own_code(parser)
    add_allow_code(parser)


def command(args: argparse.Namespace) -> int:
    from shoal.policy.device import place
    from shoal.rewards import RewardVerifier, rewards_of
    from shoal.runs.tables import ROLLOUTS, read_table
    from shoal.sandbox.verifier import Verifier
    from shoal.tasks import Tasks

    config = config_of(args.run / "config.toml", given_settings(args), args.allow_code)
    table = read_table(args.run, ROLLOUTS)
    if table.empty:
        raise UserError(f"{args.run} has no rollouts to score again")
    tasks = Tasks(config.tasks)
    today = {name: (version, of) for name, version, of in tasks.identities}
    items, before, shown = [], [], []
    for (task, seed, index, prompt), rows in table.groupby(["task", "seed", "index", "prompt"], sort=False):
        if task not in today or rows["conversation"].notna().any():
            continue
        version, of = today[task]
        question = replace(tasks.first(tasks.labels[0], 0).id, task=task, version=version, config=of)
        question = replace(question, seed=int(seed), index=int(index))
        if tasks.question(question).shown == prompt:
            items.append((question, list(rows["completion"])))
            before += list(rows["reward"])
            shown += [(str(prompt), str(text)) for text in rows["completion"]]
    if not items:
        raise UserError("none of the recorded questions can be made again: the tasks have changed")
    with Verifier(config.tasks) as verifier:
        rewards = rewards_of(config, verifier, place("cpu"))
        try:
            scored = (RewardVerifier(tasks, rewards) if rewards else verifier).score(items)
            trouble = rewards.trouble if rewards else verifier.trouble
        finally:
            if rewards:
                rewards.close()
    after = [value for group in scored for value in group]
    changed = [(a, b, *text) for a, b, text in zip(before, after, shown, strict=True) if abs(a - b) > 1e-6]
    told: dict[str, Any] = {
        "answers": len(after),
        "left_out": len(table) - len(after),
        "changed": len(changed),
        "higher": sum(b > a for a, b, *_ in changed),
        "lower": sum(b < a for a, b, *_ in changed),
        "pass@1_before": fmean(value >= 1 for value in before),
        "pass@1_after": fmean(value >= 1 for value in after),
        "examples": [
            dict(zip(("before", "after", "prompt", "completion"), row, strict=True)) for row in changed[:EXAMPLES]
        ],
        "trouble": trouble,
    }
    if args.json:
        print(json.dumps(json_safe(told)))
        return 0
    left = f" ({told['left_out']} left out: another question today, or a conversation)" if told["left_out"] else ""
    print(f"{len(after)} answers{left}: {len(changed)} rewards change, {told['higher']} up and {told['lower']} down")
    print(f"pass@1 of these answers: {told['pass@1_before']:.3f} before, {told['pass@1_after']:.3f} after")
    for a, b, prompt, text in changed[:EXAMPLES]:
        print(f'  {a:g} -> {b:g}  "{printable(prompt, 60)}" -> "{printable(text, 60)}"')
    if trouble:
        print(printable(trouble, 300))
    return 0
