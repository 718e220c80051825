"""The program `shoal`. Thin: it reads the command line, and imports what a command needs when it is given."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal import __version__
from shoal.cli.flags import Parser, add_allow_code, add_settings, config_of, given_settings
from shoal.config.load import make_config, merged
from shoal.config.settings import ENDLESS, Config
from shoal.errors import UserError
from shoal.parallel.ranks import is_leader, leave
from shoal.untrusted import harmless

RUN_HELP = """Runs a swarm of language models in this process: each node answers questions, shares what it tried,
and learns from its own rollouts and from the others'.

  shoal run                                   four guppies on easy tasks, a minute or two
  shoal run --model HuggingFaceTB/SmolLM2-135M-Instruct --suite paper --nodes 2
  shoal run --model A --model B               nodes with different models
  shoal run --model guppy --model http://localhost:8080/v1    the second answers and never learns
  shoal run --config runs/one/config.toml     the same again, elsewhere
  shoal run --resume runs/one                 goes on where a run ended or was killed

Every setting below can also stand in a TOML file (--config FILE); flags go over the file."""

EVAL_HELP = """Asks a model held-out questions: pass@1 and pass@k for each task, with 95 % Wilson intervals.

  shoal eval guppy
  shoal eval HuggingFaceTB/SmolLM2-135M-Instruct --suite paper --samples 8
  shoal eval runs/one/checkpoints/round-000060/node-1 --task chain_sum --task gcd --json"""

MERGE_HELP = """Adds LoRA adapters to the weights of their base and writes an ordinary Hugging Face model folder.

  shoal merge runs/one/checkpoints/round-000060/node-1 merged
  shoal eval merged"""

JOIN_HELP = """Runs one node of a swarm that spans processes and machines. It answers questions, shares what it tried
under its own key (`shoal id`), and learns from its own rollouts and from those of nodes that it need not trust.

  shoal join --swarm reef                              finds nodes on the local network
  shoal join relay.example.org:7447 --swarm reef       reaches them through a relay (`shoal relay`)
  shoal join HOST:PORT --swarm lab --secret-file FILE  a private swarm
  shoal join --resume runs/one                         goes on where a node ended or was killed

Training never waits for the network: alone, it trains alone. `shoal status` tells how it stands. Every setting below
can also stand in a TOML file (--config FILE); flags go over the file."""

STATUS_HELP = """Tells how a node of `shoal join` stands: peers, rates, what was refused and why, what the swarm gave.

  shoal status                  of the node that runs in this folder
  shoal status runs/one --json"""

RESUMABLE = {"rounds", "threads", "checkpoint_every"}
"""Settings that may be changed on the way."""
PARTS = {
    "relay": "shoal.swarm.relay",
    "id": "shoal.identity.keys",
    "doctor": "shoal.cli.doctor",
    "lab": "shoal.apps.lab.command",
    "judge": "shoal.apps.judge.command",
    "human": "shoal.apps.human.command",
    "watch": "shoal.apps.watch.command",
}
"""Commands with a module of their own: `HELP`, `add_arguments` and `command`."""
PART_HELP = {
    "relay": "carry a swarm between machines",
    "id": "show, export or import this machine's identity",
    "doctor": "tell what this machine can do, and what a run would take",
    "lab": "run controlled experiments and report on them",
    "judge": "ask nodes held-out questions and keep the scores",
    "watch": "show runs in the browser, live",
    "human": "answer and rank as a person, or let a program do so",
}
NETWORKED = ("network.", "admission.")
"""Sections that are not for `shoal run`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit code: 0, 2 for what the user can mend, 130 when interrupted."""
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        args = _parser(words).parse(words)
        return leave(args.command(args))
    except UserError as error:
        if not is_leader():
            return 2
        print(f"shoal: {harmless(' '.join(str(error).splitlines()))}", file=sys.stderr)  # they may be others' words
        return 2
    except KeyboardInterrupt:
        if is_leader():
            print("shoal: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0


def _parser(words: Sequence[str]) -> Parser:
    """The parser; what only the command in `words` needs is imported for it alone."""
    parser = Parser(prog="shoal", description="Collective reinforcement learning of language models.")
    parser.add_argument("--version", action="version", version=f"shoal {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a swarm on this machine", description=RUN_HELP)
    run.set_defaults(command=_run)
    run.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file")
    run.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in this folder")
    run.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: runs/DATE-TIME)")
    add_allow_code(run)
    run.add_argument("--quiet", action="store_true", help="print the result alone")
    add_settings(run, without=NETWORKED)

    join = commands.add_parser("join", help="run one node of a swarm of many machines", description=JOIN_HELP)
    join.set_defaults(command=_join)
    join.add_argument("endpoints", nargs="*", metavar="ENDPOINT", help="whom to reach: HOST:PORT, tls/HOST:PORT")
    join.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file")
    join.add_argument("--resume", type=Path, metavar="DIR", help="go on with the node in this folder")
    join.add_argument("--out", type=Path, metavar="DIR", help="the node's folder (default: runs/DATE-TIME)")
    add_allow_code(join)
    join.add_argument("--quiet", action="store_true", help="print the result alone")
    add_settings(join, without=("swarm.nodes", "network.connect"))

    status = commands.add_parser("status", help="tell how a joined node stands", description=STATUS_HELP)
    status.set_defaults(command=_status)
    status.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="its folder (default: the newest in runs/)")
    status.add_argument("--json", action="store_true", help="print one JSON object")

    merge = commands.add_parser("merge", help="merge LoRA adapters into their model", description=MERGE_HELP)
    merge.set_defaults(command=_merge)
    merge.add_argument("folder", type=Path, metavar="FOLDER", help="a node's folder in a checkpoint, or any of peft's")
    merge.add_argument("out", type=Path, metavar="OUT", help="the folder to write: new or empty")

    evaluate = commands.add_parser("eval", help="measure a model on held-out questions", description=EVAL_HELP)
    evaluate.set_defaults(command=_eval)
    evaluate.add_argument("model", metavar="MODEL", help="a name on the Hub, folder, GGUF file, endpoint or guppy")
    evaluate.add_argument("--task", action="append", metavar="NAME", help="a task of reasoning-gym; may be repeated")
    evaluate.add_argument("--k", action="append", type=int, metavar="K", help="pass@K (default: all samples)")
    evaluate.add_argument("--json", action="store_true", help="print one JSON object")
    settings = ["seed", "threads", "tasks.suite", "tasks.held_out", "evaluation.questions", "evaluation.samples"]
    decoding = ["max_completion_length", "temperature", "top_p", "device", "dtype"]
    decoding += ["engine", "endpoint_timeout", "endpoint_requests", "vllm_gpu_memory_utilization"]
    add_settings(evaluate, [*settings, *(f"policy.{name}" for name in decoding)])
    for name, module in PARTS.items():
        if name in words:
            part = importlib.import_module(module)
            command = commands.add_parser(name, help=PART_HELP[name], description=part.HELP)
            command.set_defaults(command=part.command)
            part.add_arguments(command)
        else:
            commands.add_parser(name, help=PART_HELP[name])
    return parser


def _run(args: argparse.Namespace) -> int:
    given = given_settings(args)
    if args.resume:
        if args.config or args.out:
            raise UserError("--resume takes everything from its folder; leave --config and --out away")
        fixed = sorted(set(given) - RESUMABLE)
        if fixed:
            raise UserError(f"a resumed run keeps its settings; only {', '.join(sorted(RESUMABLE))} may change")
        source = args.resume / "config.toml"
        config = config_of(source, given, args.allow_code) if source.exists() else Config()
    else:
        config = config_of(args.config, given, args.allow_code)
    from shoal.cli.session import run_session

    return run_session(config, args.out, args.resume, args.quiet)


def _join(args: argparse.Namespace) -> int:
    given = given_settings(args)
    if args.endpoints:
        given = merged(given, {"network": {"connect": args.endpoints}})
    if args.resume:
        if args.config or args.out:
            raise UserError("--resume takes everything from its folder; leave --config and --out away")
        fixed = sorted(set(given) - RESUMABLE - {"network", "admission"})
        if fixed:
            raise UserError(f"a resumed node keeps its settings, but for the network's; {fixed[0]} may not change")
        source = args.resume / "config.toml"
        config = config_of(source, given, args.allow_code) if source.exists() else Config()
    else:
        endless = {} if args.config else {"rounds": ENDLESS}
        given = merged(endless, merged(given, {"swarm": {"nodes": 1}}))
        config = config_of(args.config, given, args.allow_code)
    from shoal.cli.session import join_session

    return join_session(config, args.out, args.resume, args.quiet)


def _status(args: argparse.Namespace) -> int:
    from shoal.cli.status import status_session

    return status_session(args.folder, args.json)


def _eval(args: argparse.Namespace) -> int:
    settings: dict[str, Any] = merged(given_settings(args), {"policy": {"model": [args.model]}})
    if args.task:
        settings = merged(settings, {"tasks": {"tasks": [{"name": name} for name in args.task]}})
    from shoal.cli.session import eval_session

    config = make_config(settings, "the command line", allow_code=True, typed_endpoints=True)
    return eval_session(config, args.model, args.k, args.json)


def _merge(args: argparse.Namespace) -> int:
    from shoal.policy.lora import merge  # torch, only now

    merge(args.folder, args.out)
    print(args.out)
    return 0
