"""`shoal ask`: questions of one's own, and what models answer, side by side."""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from shoal.cli.flags import add_allow_code, add_settings, config_of, given_settings
from shoal.config.load import merged
from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.display.answers import print_answers
from shoal.errors import UserError
from shoal.policy.named import check_exists
from shoal.rollout import Completion, FinishReason, Message, Question, QuestionId, seed_of
from shoal.runs.folder import CONFIG
from shoal.runs.source import source_of
from shoal.untrusted import encodable, printable

HELP = """Asks models questions and prints what they answer. Each question stands alone: there is no conversation.

  shoal ask smollm2 "What is the capital of France?"
  shoal ask runs/one "Which is larger, 36 or 39?"   the run's best model, beside the one from which it began
  shoal ask runs/one                                asks what you type, line by line; Ctrl-D ends
  shoal ask smollm2 --beside guppy "8 + 7 ="        several models: the first word is always a model
  shoal ask smollm2 --config my.toml "8 + 7 ="      in the form of the file's first task, decoded as it says"""
FROM_FILE = ("seed", "threads", "tasks", "policy")
"""What is taken from --config."""
LENGTH = 256
"""The longest answer, in tokens, where nothing says otherwise."""
LONGEST_LINE = 2**20
"""Bytes of standard input that are one question, at most."""
ID = QuestionId("ask", "1", "", 0, 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    models = "a run's folder, short name, name on the Hub, model folder, GGUF file, endpoint or guppy"
    parser.add_argument("model", metavar="MODEL", help=models)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help="default: the lines of standard input")
    parser.add_argument("--beside", action="append", default=[], metavar="MODEL", help="ask this model, too")
    parser.add_argument("--num", type=int, default=1, metavar="N", help="answers to each question (default: 1)")
    temperature = "0: the most likely tokens (default: 0 for one answer, for several the file's or 1)"
    parser.add_argument("--temperature", type=float, metavar="X", help=temperature)
    parser.add_argument("--config", type=Path, metavar="FILE", help="form and settings (default: those of the run)")
    add_allow_code(parser)
    decoding = ("max_completion_length", "top_p", "device", "dtype", "engine")
    defaults = {"policy.max_completion_length": f"the file's or {LENGTH}"}
    add_settings(parser, ["seed", "threads", *(f"policy.{name}" for name in decoding)], defaults=defaults)


def command(args: argparse.Namespace) -> int:
    """Returns the exit code: 0, or 1 if a server left a question without an answer."""
    if args.num < 1 or not 0 <= (args.temperature or 0) < math.inf:
        raise UserError("--num is at least 1, and --temperature at least 0")
    for name in (args.model, *args.beside):
        check_exists(name)
    config, models, file = _settings(args)
    temperature = args.temperature
    if temperature is None:
        temperature = 0.0 if args.num == 1 else config.policy.temperature
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    notes.print(Text(f"loading {' and '.join(map(printable, models))}", "dim"))
    form = form_of(config) if file else None
    policies = _load(models, config, temperature)
    from shoal.policy.language import LanguagePolicy  # torch, only now

    # What a model says before a question by itself, as exported ones do.
    own = {label: one.lm.asking for label, one in policies.items() if not form and isinstance(one, LanguagePolicy)}
    console = Console(highlight=False)
    asked = itertools.count(1)

    def ask(text: str, echo: bool = False) -> int:
        """Returns 1 if a model gave no answer, else 0. Raises `UserError`."""
        said = (Message("user", encodable(text)),)
        seed = seed_of(config.seed, "ask", next(asked))
        if echo:
            console.print(Text(printable(text), "bold cyan"), soft_wrap=True)
        answers: dict[str, Sequence[Completion]] = {}
        for label, policy in policies.items():
            question = Question(ID, said, form.asking if form else own.get(label, ()))
            with notes.status(Text(f"asking {printable(label, 60)}")):
                [answers[label]] = policy.generate([question], args.num, seed)
            if policy.trouble:
                notes.print(Text(printable(policy.trouble), "red"))
        print_answers(console, answers)
        if any(one.finish_reason == FinishReason.length for group in answers.values() for one in group):
            notes.print(Text("cut: --max-completion-length N allows more tokens", "dim"))
        if echo:
            console.print()
        return int(not all(answers.values()))

    if args.questions or not sys.stdin.isatty():
        return max([0, *(ask(text, echo=len(args.questions) != 1) for text in args.questions or _piped())])
    notes.print(Text(f"asking {' and '.join(map(printable, policies))}; Ctrl-D ends", "dim"))
    if form:
        notes.print(Text(f"for example: {printable(form.prompt[-1].content)}", "dim"))
    for text in _typed():
        try:
            ask(text)
        except UserError as error:  # the question may be too long
            notes.print(Text(printable(str(error)), "red"))
    return 0


def _settings(args: argparse.Namespace) -> tuple[Config, dict[str, str], Path | None]:
    """The settings, what is loaded of each model by its label, and the file of the settings. Raises `UserError`."""
    run = Path(args.model)
    own = run / CONFIG
    file: Path | None = args.config or (own if own.is_file() else None)
    given = given_settings(args)
    if own.is_file():
        best = source_of(args.model)
        models = {f"{best.node} after round {best.round}": best.model}
        of_run = config_of(own, {}, args.allow_code, FROM_FILE)
        models |= began_with(of_run, best.node)
    else:
        models = {args.model: args.model}
    models |= {name: name for name in args.beside}
    asked = {"policy": {"model": list(models.values())}}
    config = config_of(file, merged(given, asked), args.allow_code, FROM_FILE).resolved()
    if not file and "max_completion_length" not in given.get("policy", {}):
        config.policy.max_completion_length = LENGTH
    return config, models, file


def _load(models: Mapping[str, str], config: Config, temperature: float) -> dict[str, Any]:
    """The models' policies by their labels. Raises `UserError`."""
    gc.disable()  # which takes a fifth of the time of these imports
    try:
        from shoal.policy.decoders.base import Sampling  # torch, only now
        from shoal.policy.fetch import resolve
        from shoal.runs.models import build_policy
    finally:
        gc.enable()
    policies: dict[str, Any] = {}
    for label, source in models.items():
        policies[label] = build_policy(config, source if is_endpoint(source) else resolve(source))
        policies[label].sampling = Sampling(temperature, config.policy.top_p, int(config.policy.max_completion_length))
    return policies


def began_with(config: Config, node: str = "") -> dict[str, str]:
    """The model from which a node began, by its label; nothing where it is loaded elsewhere."""
    name = config.node_models.get(node, config.policy.model[0])
    return {f"{name}, from which it began": name} if name in config.local_models else {}


def form_of(config: Config) -> Question:
    """A question of the first task, with its system prompt and examples. Raises `UserError` for an environment."""
    from shoal.tasks import Tasks  # takes a second
    from shoal.tasks.suites import specs_of

    first = specs_of(config.tasks)[0]
    only = config.tasks.model_copy(update={"sources": [first]})
    tasks = Tasks(only)
    question = tasks.first(tasks.labels[0], 0)
    if question.turns > 1:
        raise UserError(
            f"task {first.name!r} answers back, and `shoal ask` holds no conversations: `shoal watch` shows them"
        )
    return question


def _piped() -> Iterator[str]:
    """The lines of standard input that say something."""
    while line := sys.stdin.buffer.readline(LONGEST_LINE):
        if text := line.decode("utf-8", "replace").strip():
            yield text


def _typed() -> Iterator[str]:
    """What is typed, line by line, until Ctrl-D."""
    with contextlib.suppress(ImportError):  # Windows has none
        import readline  # noqa: F401 (input() then edits lines)
    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            print()
            return
        if text:
            yield text
