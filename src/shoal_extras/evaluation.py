"""`shoal eval`: a model's pass@1 and pass@k on held-out questions."""

import argparse
import json
from collections.abc import Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.cli.flags import add_allow_code, add_data, add_settings, config_of, given_settings
from shoal.config.answer_form import extract
from shoal.config.load import merged
from shoal.config.settings import Config
from shoal.display.answers import ANSWER, QUESTION, answer_line
from shoal.display.text import print_warning
from shoal.errors import UserError
from shoal.evaluation.blind import Shares, constants, over_all, shuffled
from shoal.evaluation.pass_at_k import Estimate, Evaluation, evaluate
from shoal.parallel.rank_zero import RankZeroVerifier
from shoal.parallel.ranks import joined
from shoal.policy.fetch import fetch_models
from shoal.policy.named import check_exists
from shoal.protocols import Grader
from shoal.rollout import seed_of
from shoal.tasks import Tasks
from shoal.untrusted import json_safe, printable

HELP = """Asks a model held-out questions: pass@1 and pass@k for each task, with 95 % Wilson intervals.

  shoal eval guppy
  shoal eval smollm2 --suite reef --samples 8
  shoal eval runs/one/checkpoints/round-000060/node-1 --config runs/one/config.toml
  shoal eval smollm2 --data math500
  shoal eval guppy --task chain_sum --task gcd --json"""
FROM_FILE = ("seed", "threads", "tasks", "evaluation", "policy")
"""What is taken from --config, beside the model."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a name on the Hub, folder, GGUF file, endpoint or guppy")
    parser.add_argument("--config", type=Path, metavar="FILE", help="tasks and settings from a TOML file")
    add_allow_code(parser)
    add_data(parser)
    parser.add_argument("--k", action="append", type=int, metavar="K", help="pass@K (default: all samples)")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="show N answers, and whether they are right")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    names = {"evaluation.questions": "questions", "evaluation.samples": "samples"}
    decoding = ("max_completion_length", "temperature", "top_p", "device", "dtype", "engine")
    tasks = ("seed", "threads", "tasks.suite", "tasks.examples", "tasks.answer")
    add_settings(parser, [*tasks, *names, *(f"policy.{name}" for name in decoding)], names=names)


def command(args: argparse.Namespace) -> int:
    if args.show < 0:
        raise UserError("--show is 0 or more")
    if args.show and args.json:
        raise UserError("--show prints answers for people: leave out --json")
    model: str = args.model
    check_exists(model)
    flags = merged(given_settings(args), {"policy": {"model": [model]}})
    given = config_of(args.config, flags, args.allow_code, FROM_FILE)
    from shoal.runs.data import check_data

    check_data(given, trains=False)
    fetch_models(given)
    config = given.resolved()
    samples = int(config.evaluation.samples)
    ks = sorted({1, *(args.k or [samples])})
    if not 1 <= ks[0] <= ks[-1] <= samples:
        raise UserError(f"pass@{ks[-1] if ks[-1] > samples else ks[0]} needs --samples {max(ks)} or more, and K >= 1")
    with joined(config.policy.device) as ranks:
        console = Console(stderr=args.json, quiet=not ranks.is_zero)
        with console.status(Text(f"loading {model}")) as status:
            from shoal.runs.choices import choose  # torch, only now
            from shoal.runs.models import build_policy
            from shoal.sandbox.verifier import Verifier

            config = ranks.broadcast(choose(given, ranks)[0])
            tasks = Tasks(config.tasks)
            questions = tasks.held_out(int(config.evaluation.questions), config.seed)
            policy = build_policy(config, model, ranks)
            with Verifier(config.tasks) as verifier:
                scorer: Grader = verifier if ranks.size == 1 else RankZeroVerifier(verifier, ranks)
                seed = seed_of(config.seed, "evaluate")
                every = sum(map(len, questions.values()))

                def hear(answered: int) -> None:
                    status.update(Text(f"asking {model}: {answered} of {every} questions"))

                result = evaluate(policy, scorer, questions, samples, seed, hear)
                baselines = {"blind": constants(tasks, questions), "shuffled": shuffled(result, scorer)}
    if not ranks.is_zero:
        return 0
    failed, scored = verifier.counts
    if failed and failed == scored:
        raise UserError(f"no answer could be scored: {verifier.trouble}")
    if verifier.trouble:
        print_warning(console, verifier.trouble)
    if result.unanswered:
        lost = f"{result.unanswered} questions were not answered and are left out ({policy.trouble})"
        if not any(result.correct.values()):
            raise UserError(lost)
        console.print(lost, soft_wrap=True, highlight=False, markup=False)
    figures = {task: _figures(result, baselines, ks, task) for task in (*result.correct, None)}
    if args.json:
        print(json.dumps(json_safe(_evaluation_object(result, figures, model, config))))
    else:
        console.print(_evaluation_table(result, figures, model))
        print_answers(console, result, tasks, args.show)
    return 0


def print_answers(console: Console, result: Evaluation, tasks: Tasks, most: int) -> None:
    """The first answer to each of `most` questions, from all tasks by turns, and what of it counted as the answer."""
    by_turns = (each for group in zip_longest(*result.asked.values()) for each in group if each and each.answers)
    for asked in islice(by_turns, most):
        text = asked.answers[0].text
        found = extract(text, tasks.lookup(asked.question.id)[1].answer)
        console.print(Text(f"\n{printable(asked.question.shown, QUESTION)}"))
        console.print(answer_line("  answer ", text, asked.rewards[0] >= 1))
        counted = "nothing: it does not have the form asked for" if found is None else printable(found, ANSWER)
        console.print(Text(f"  counted  {counted}"))


Figures = dict[str, int | Estimate | float | None]


def _figures(result: Evaluation, baselines: Mapping[str, Shares], ks: Sequence[int], task: str | None) -> Figures:
    """The number of questions, pass@k and the baselines, of one task or of all."""
    counts = {name: len(correct) for name, correct in result.correct.items() if task in (None, name)}
    found: Figures = {"questions": sum(counts.values())} | {f"pass@{k}": result.pass_at(k, task) for k in ks}
    return found | {name: over_all(shares, counts) for name, shares in baselines.items()}


def _evaluation_object(
    result: Evaluation, figures: Mapping[str | None, Figures], model: str, config: Config
) -> dict[str, Any]:
    plain = {
        task: {name: vars(one) if isinstance(one, Estimate) else one for name, one in some.items()}
        for task, some in figures.items()
    }
    return {
        "model": model,
        "suite": None if config.tasks.sources else config.tasks.suite,
        "seed": config.seed,
        "samples": result.samples,
        "interval": "Wilson 95 %, over questions",
        "unanswered": result.unanswered,
        "all": plain.pop(None),
        "tasks": plain,
    }


def _evaluation_table(result: Evaluation, figures: Mapping[str | None, Figures], model: str) -> Table:
    def cell(figure: int | Estimate | float | None) -> str:
        if isinstance(figure, Estimate):
            return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"
        return "–" if figure is None else str(figure) if isinstance(figure, int) else f"{figure:.3f}"

    answers = "1 answer" if result.samples == 1 else f"{result.samples} answers"
    table = Table(
        title=Text(f"{model}: held-out, {answers} to each question, 95 % Wilson over questions", "table.title"),
        caption="blind: the commonest right answer of each task. shuffled: the same answers, to other questions of it.",
        caption_justify="left",
        box=None,
    )
    table.add_column("task", overflow="fold")
    for name in figures[None]:
        table.add_column(name, justify="right")
    for task, some in figures.items():
        if task is None:
            table.add_section()
        table.add_row(task or "all", *map(cell, some.values()), style="" if task else "bold")
    return table
