"""The program `shoal`: finds the command and runs it. Only the chosen command's module is imported."""

import difflib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from shoal import __version__
from shoal.cli.command import Command, found_commands
from shoal.errors import UserError
from shoal.parallel.ranks import is_rank_zero, leave
from shoal.untrusted import printable

COMMANDS = {
    "demo": Command("shoal.cli.demo", "a pretrained model before and after three minutes of training"),
    "run": Command("shoal.cli.run", "train a swarm of models on this machine"),
    "join": Command("shoal.cli.join", "train one node in a swarm of many machines"),
    "ask": Command("shoal.cli.ask", "ask models questions of your own, side by side"),
    "status": Command("shoal.cli.status", "show the state of a joined node"),
}
"""The core's own commands. Those of other packages come by entry points."""
BEGIN = """begin here:
  shoal demo                       a pretrained model learns for three minutes: before and after
  shoal run                        four small models learn together for a minute
  shoal watch                      see it in the browser: charts, answers, who learned from whom
  shoal ask runs/DATE-TIME         ask what came out, beside what went in
  shoal run --model smollm2 --suite reef --nodes 2
  shoal COMMAND --help"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit code: 0, 2 for what the user can mend, 130 when interrupted."""
    if argv is None:
        make_streams_last()
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        if not words:
            _parser([]).print_help()
            return 0
        args = _parser(words).parse(words)
        args.words, args.is_program = words, argv is None
        if "OMP_WAIT_POLICY" not in os.environ:
            # Torch's threads then wait for each other for microseconds and sleep. libgomp, which reads this when torch
            # is imported, lets them spin thirty times as long: beside busy programs a third to half as fast.
            os.environ.setdefault("GOMP_SPINCOUNT", "10000")
        return leave(args.command(args))
    except UserError as error:
        if is_rank_zero():
            print(f"shoal: {printable(' '.join(str(error).splitlines()))}", file=sys.stderr)  # may quote strangers
        return 2
    except KeyboardInterrupt:
        if is_rank_zero():
            print("shoal: interrupted", file=sys.stderr)
        return 130


def _parser(words: Sequence[str]) -> Any:
    """The parser, with the arguments of the command in `words` alone. Raises `UserError` for an unknown command."""
    from shoal.cli.flags import Parser  # half a second: within `main`, an interrupt is no traceback

    parser = Parser(prog="shoal", description="Collective reinforcement learning of language models.", epilog=BEGIN)
    parser.add_argument("--version", action="version", version=f"shoal {__version__}")
    chosen = next((word for word in words if not word.startswith("-")), None)
    commands = COMMANDS if chosen in COMMANDS else COMMANDS | found_commands()
    if chosen is not None and chosen not in commands:
        near = difflib.get_close_matches(chosen, commands, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(commands)}"
        raise UserError(f"there is no command '{chosen}'; {hint} (`shoal --help`)")
    choices = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", prog="shoal")
    for name, command in commands.items():
        if name != chosen:
            choices.add_parser(name, help=command.purpose)
            continue
        module = command.load(name)
        of_command = choices.add_parser(name, help=command.purpose, description=module.HELP)
        of_command.set_defaults(command=module.command)
        module.add_arguments(of_command)
        of_command.shorten_usage()
    return parser


class _Lasting(io.FileIO):
    """Bytes that cannot be written are lost: of a pipe or a terminal that was closed, or of a log on a full disk."""

    def write(self, data: "bytes | memoryview") -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError:
            return len(data)


def make_streams_last() -> None:
    """Replaces standard output and error by streams that never raise: a character that their encoding lacks becomes
    `?`. What was closed at the start becomes the null device, so that no file gets its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (for good)
    sys.stdout, sys.stderr = _lasting(sys.stdout, 1), _lasting(sys.stderr, 2)


def _lasting(stream: Any, number: int) -> io.TextIOWrapper:
    encoding, unbuffered = (stream.encoding, stream.write_through) if stream else ("utf-8", False)
    raw: Any = _Lasting(number, "wb", closefd=False)
    buffer = raw if unbuffered else io.BufferedWriter(raw)
    lines = number == 2 or raw.isatty()
    return io.TextIOWrapper(buffer, encoding, "replace", line_buffering=lines, write_through=unbuffered)
