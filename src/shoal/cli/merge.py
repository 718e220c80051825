"""`shoal merge`: LoRA adapters into their model."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = """Adds LoRA adapters to the weights of their base and writes an ordinary Hugging Face model folder.

  shoal merge runs/one/checkpoints/round-000060/node-1 merged
  shoal eval merged"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a node's folder in a checkpoint, or any of peft's")
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write: new or empty")


def command(args: argparse.Namespace) -> int:
    from shoal.policy.lora import merge  # torch, only now

    merge(args.folder, args.out)
    print(f"{args.out}\nto measure it:  shoal eval {args.out}")
    return 0
