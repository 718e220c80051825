"""`shoal export`: a model as a folder, a GGUF file or a repository on the Hugging Face Hub, with a card."""

import argparse
import shlex
from pathlib import Path

from rich.console import Console
from rich.text import Text

from shoal.display.text import print_next
from shoal.runs.folder import CONFIG
from shoal.untrusted import printable

HELP = """Takes a model away: as an ordinary Hugging Face folder, as a GGUF file for llama.cpp and Ollama, or to the
Hugging Face Hub. A card made from the run goes with it: what it learned, from whom, and how it was measured.

  shoal export runs/one --to my-model                 the best node of the run's last checkpoint
  shoal export runs/one/node-2 --to gguf:model.Q8_0.gguf
  shoal export runs/one --to hub:my-model             private; --public shows it to everybody
  shoal export adapters/ --to merged --merge          LoRA adapters, added to the weights of their base"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    sources = "a run's folder, RUN/NODE, a node's folder in a checkpoint, or any model that `shoal eval` takes"
    parser.add_argument("source", metavar="SOURCE", help=sources)
    targets = "hub:NAME, gguf:FILE.gguf (F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1 or Q4_0 in its name) or a new folder"
    parser.add_argument("--to", required=True, metavar="TARGET", help=targets)
    parser.add_argument("--merge", action="store_true", help="add LoRA adapters to their base (always so in GGUF)")
    parser.add_argument("--plain", action="store_true", help="leave the way of asking behind: the bare chat template")
    parser.add_argument("--public", action="store_true", help="show it to everybody on the Hub (default: private)")


def command(args: argparse.Namespace) -> int:
    console = Console(highlight=False, soft_wrap=True)
    with console.status("") as status:
        from shoal.runs.source import source_of

        source = source_of(args.source)
        from shoal_extras.export.export import target_of  # torch, only now
        from shoal_extras.export.exported import Exported

        target = target_of(args.to, args.public)
        model = Exported.of(source, args.merge, lambda text: status.update(Text(printable(text, 120))), args.plain)
        written = target.write(model)
    for path in written:
        console.print(Text(printable(path)))
    print_next(console, _next(written, source.run))
    return 0


def _next(written: list[str], run: Path | None) -> dict[str, str]:
    """What to do with what was written. `run`: in which the model was made, whose tasks measure it."""
    first = shlex.quote(written[0])
    asked = f" --config {shlex.quote(str(run / CONFIG))}" if run else ""
    if written[0].startswith(("http://", "https://")):
        return {f"shoal eval {shlex.quote(written[0].split('/', 3)[3])}{asked}": "measure it, from the Hub"}
    if written[0].endswith(".gguf"):  # transformers reads some of them otherwise than llama.cpp: docs/guides/export.md
        made = shlex.quote(written[2])
        return {
            f"llama-server -m {first}": "serve it by llama.cpp",
            f"ollama create my-model -f {made}": "or take it into Ollama",
        }
    return {f"shoal eval {first}{asked}": "measure it"}
