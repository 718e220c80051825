"""`shoal ask`: questions of one's own, and what models answer, side by side."""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.text import Text

from shoal.cli.flags import add_allow_code, add_settings, config_of, given_settings
from shoal.config.load import merged
from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.display.answers import print_answers
from shoal.errors import UserError
from shoal.policy.named import check_exists
from shoal.rollout import FinishReason, Message, Question, QuestionId, seed_of
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
SHOWN = 400
"""Characters of an answer that are shown while it comes."""
COMPILER = "torch._dynamo"
MARKS = ("disable", "allow_in_graph", "assume_constant_result")
"""What transformers says of functions to the compiler."""
MISSING = ("is_scipy_available", "is_accelerate_available", "is_torch_distributed_available")
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
    with _for_answers() if args.is_program else contextlib.nullcontext():
        policies = {label: _load(models[label], config, temperature) for label in list(models)[:1]}
    from shoal.policy.language import LanguagePolicy  # torch, only now

    console = Console(highlight=False)
    asked = itertools.count(1)

    def ask(text: str, echo: bool = False) -> int:
        """Returns 1 if a model gave no answer, else 0. Raises `UserError`."""
        said = (Message("user", encodable(text)),)
        seed = seed_of(config.seed, "ask", next(asked))
        if echo:
            console.print(Text(printable(text), "bold cyan"), soft_wrap=True)
        complete = True
        for label, source in models.items():
            if label not in policies:  # only now, when the first one has answered
                policies[label] = _load(source, config, temperature)
            policy = policies[label]
            # What a model says before a question by itself, as checkpoints and exported ones do.
            first = next(iter(policies.values())) if form and not args.config else policy
            own = first.lm.asking if isinstance(first, LanguagePolicy) else ()
            asking = form.asking if form and (args.config or not own) else own
            question = Question(ID, said, asking)
            with notes.status(Text(f"asking {printable(label, 60)}")) as status:
                if isinstance(policy, LanguagePolicy):
                    policy.on_text = lambda text, to=status: to.update(Text(printable(text.strip()[-SHOWN:])))
                [answers] = policy.generate([question], args.num, seed)
            if policy.trouble:
                notes.print(Text(printable(policy.trouble), "red"))
            print_answers(console, label if len(models) > 1 else "", answers)
            if any(one.finish_reason == FinishReason.length for one in answers):
                notes.print(Text("cut: --max-completion-length N allows more tokens", "dim"))
            complete = complete and bool(answers)
        if echo:
            console.print()
        return int(not complete)

    if args.questions or not sys.stdin.isatty():
        return max([0, *(ask(text, echo=len(args.questions) != 1) for text in args.questions or _piped())])
    notes.print(Text(f"asking {' and '.join(map(printable, models))}; Ctrl-D ends", "dim"))
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


def _compiler(name: str) -> Any:
    """What more is asked of the module that stands for torch's compiler: the real one takes its place."""
    if name.startswith("__"):
        raise AttributeError(name)
    sys.modules.pop(COMPILER, None)
    return getattr(importlib.import_module(COMPILER), name)


def _unmarked(function: Any = None, *_: Any, **__: Any) -> Any:
    return function or (lambda decorated: decorated)


@contextlib.contextmanager
def _for_answers() -> Iterator[None]:
    """transformers imports sooner without SciPy, accelerate, torch's compiler and distributed tensors, and
    without collecting garbage. No model that answers on one machine uses them. What is imported within takes them for
    missing until the process ends."""
    gc.disable()
    with contextlib.ExitStack() as held:
        held.callback(gc.enable)
        import torch
        import transformers.utils

        compiler = ModuleType(COMPILER)
        marks: dict[str, Any] = dict.fromkeys(MARKS, _unmarked)
        missing: dict[str, Any] = dict.fromkeys(MISSING, lambda *_: False)
        vars(compiler).update(marks, __path__=[f"{torch.__path__[0]}/_dynamo"], __getattr__=_compiler)
        held.enter_context(patch.multiple(torch.compiler, **marks))
        held.enter_context(patch.multiple(transformers.utils, **missing))
        held.enter_context(patch.object(torch.distributed, "is_available", lambda: False))
        if sys.modules.setdefault(COMPILER, compiler) is compiler:
            held.callback(lambda: sys.modules.pop(COMPILER))
        yield
        gc.freeze()


def _load(source: str, config: Config, temperature: float) -> Any:
    """The policy of a model. Raises `UserError`."""
    from shoal.policy.decoders.base import Sampling  # torch, only now
    from shoal.policy.fetch import resolve
    from shoal.runs.models import build_policy

    policy: Any = build_policy(config, source if is_endpoint(source) else resolve(source))
    policy.sampling = Sampling(temperature, config.policy.top_p, int(config.policy.max_completion_length))
    return policy


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
